#!/bin/sh
# Fulcrum's CPU loops beside STREAM (gcc), OpenBLAS and the gemm crate, interleaved in one process.
# Needs gcc and OpenBLAS (Debian: apt-get install libopenblas-dev). Arguments: [all|streams|products] [runs].
set -eu
cd "$(dirname "$0")/cpu_peers"
cargo build --release --quiet --target-dir "${CARGO_TARGET_DIR:-../../target}/cpu_peers"
# The peers' threads stop spinning soon after their work, so that none disturbs the next.
export GOMP_SPINCOUNT=10000 OPENBLAS_THREAD_TIMEOUT=20
exec "${CARGO_TARGET_DIR:-../../target}/cpu_peers/release/cpu-peers" "$@"
