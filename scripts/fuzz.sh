#!/usr/bin/env bash
# Runs the fuzz targets of fuzz/, each for so many seconds: `fuzz.sh [SECONDS] [TARGET…]`, all of them for ten seconds
# without arguments. Needs a nightly toolchain and a C++ compiler, and no cargo-fuzz: the flags are those that it gives.
# SANITIZER=address also looks for accesses beside memory, at half the speed; the readers themselves have no `unsafe`.
# Inputs that were found stay in target/fuzz/corpus; inputs that fail, in target/fuzz/found. It says for each target how
# many inputs it ran and how many edges of the program they reach. Ends with 3 where the tools are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
[ $# -gt 0 ] && shift

for tool in "cargo +nightly" c++; do
  $tool --version >/dev/null 2>&1 || {
    echo "not run: ${tool} is not installed here"
    exit 3
  }
done
target=x86_64-unknown-linux-gnu
out=$PWD/target/fuzz
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks"
[ -z "${SANITIZER:-}" ] || export RUSTFLAGS="$RUSTFLAGS -Zsanitizer=$SANITIZER"
CARGO_TARGET_DIR=$out cargo +nightly build --quiet --release --manifest-path fuzz/Cargo.toml --target "$target" --bins
[ $# -gt 0 ] || set -- $(sed -n 's/^path = "fuzz_targets\/\(.*\).rs"/\1/p' fuzz/Cargo.toml)

# What a target begins with, beside what it found before: small files of its own, and what is shipped.
seeds() { # TARGET
  echo "fuzz/seeds/$1"
  case $1 in
    machine) echo hwprofiles/data/machines hwprofiles/data/gpus ;;
    engine) echo scenarios/engines ;;
    config) echo scenarios/models ;;
    publication) echo scenarios/published ;;
    gguf) echo executor/tests/golden ;;
  esac
}
failed=0
mkdir -p "$out/found"
scratch=$(mktemp -d "${TMPDIR:-$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)}/fuzz-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
for name in "$@"; do
  mkdir -p "$out/corpus/$name"
  log=$out/$name.log
  # shellcheck disable=SC2046 # One folder, or several.
  if ! TMPDIR=$scratch "$out/$target/release/$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -max_len=32768 -print_final_stats=1 -artifact_prefix="$out/found/$name-" "$out/corpus/$name" $(seeds "$name") \
    >"$log" 2>&1; then
    failed=1
    echo "$name: FAILED, see $log"
    grep -m 3 -E "panicked|ERROR|SUMMARY" "$log" || true
    continue
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
  echo "$name: $runs inputs, ${edges#cov: } edges"
done
exit "$failed"
