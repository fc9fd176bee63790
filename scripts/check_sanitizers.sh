#!/usr/bin/env bash
# Runs tests of the only crate with `unsafe` code under what sees its mistakes:
#
#   address  AddressSanitizer, all tests or those that are named: accesses beside memory, after its end
#   thread   ThreadSanitizer, the tests of threads: races. The standard library is built with it.
#   miri     Miri, how threads wait for each other: races and orders of memory that are too weak on any CPU,
#            in eight orders of the threads
#
# Arguments: [address|thread|miri] [TEST…]. Needs a nightly toolchain, for `thread` its component rust-src and for
# `miri` miri; they are added where rustup can, and where it cannot the script says so and ends with 3.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-address}
[ $# -gt 0 ] && shift
target=x86_64-unknown-linux-gnu
# Half optimised: what takes the time here is to compile.
crate=(-p fulcrum-kernels --config profile.dev.package.fulcrum-kernels.opt-level=1)

absent() {
  echo "not checked: $1"
  exit 3
}
cargo +nightly --version >/dev/null 2>&1 || absent "no nightly toolchain is installed here"
component() {
  rustup component list --toolchain nightly --installed 2>/dev/null | grep -q "^$1" ||
    rustup component add "$1" --toolchain nightly >/dev/null 2>&1 || absent "rustup cannot add $1 here"
}

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/sanitized}
case $kind in
  address)
    # Leaks are not looked for: threads and pages live as long as the program. A fault is the system's, since a test of
    # the fences asks for its signal.
    export RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0:handle_segv=0
    cargo +nightly test --target "$target" "${crate[@]}" --lib --tests -- "$@"
    ;;
  thread)
    component rust-src
    [ $# -gt 0 ] || set -- runtime:: --skip schedules
    export RUSTFLAGS=-Zsanitizer=thread
    cargo +nightly test -Zbuild-std --target "$target" "${crate[@]}" --lib -- "$@"
    ;;
  miri)
    component rust-src
    component miri
    [ $# -gt 0 ] || set -- runtime::team runtime::flag
    export MIRIFLAGS="-Zmiri-many-seeds=0..8 ${MIRIFLAGS:-}"
    cargo +nightly miri test "${crate[@]}" --lib -- "$@"
    ;;
  *)
    sed -n '2,12s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
