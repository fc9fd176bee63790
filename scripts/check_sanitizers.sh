#!/usr/bin/env bash
# Runs the tests of the only crate with `unsafe` code under AddressSanitizer, and its tests of threads under
# ThreadSanitizer. `check_sanitizers.sh [address|thread] [TEST…]`. Needs a nightly toolchain; with ThreadSanitizer also
# its component rust-src, since the standard library must be built with it.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-address}
[ $# -gt 0 ] && shift
target=x86_64-unknown-linux-gnu
build=()
[ "$kind" = thread ] && build=(-Zbuild-std)
# Leaks are not looked for: threads and pages live as long as the program.
export RUSTFLAGS="-Zsanitizer=$kind" ASAN_OPTIONS=detect_leaks=0 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/sanitized}
cargo +nightly test "${build[@]}" --target "$target" -p fulcrum-kernels --lib --tests -- "$@"
