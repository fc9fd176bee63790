#!/usr/bin/env bash
# Runs the fuzz targets of fuzz/, all of them or those that are named:
#
#   fuzz.sh [SECONDS] [TARGET…]    each for so many seconds, ten without arguments
#   fuzz.sh NUMBERx [TARGET…]      each until it had so many inputs, those of earlier calls counted, the fastest first:
#                                  `fuzz.sh 10000000x` may be stopped and goes on when it is called again
#   fuzz.sh totals                 what each target has had, by all calls
#
# Needs a nightly toolchain and a C++ compiler, and no cargo-fuzz: the flags are those that it gives. SANITIZER=address
# also looks for accesses beside memory, at half the speed; the readers themselves have no `unsafe`. Inputs that were
# found stay in target/fuzz/corpus; inputs that fail, in target/fuzz/found; a line for each run in target/fuzz/runs.tsv:
# target, end, inputs, seconds of a processor, edges of the program that they reach, and whether it passed. Ends with 3
# where the tools are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
amount=${1:-10}
[ $# -gt 0 ] && shift
target=x86_64-unknown-linux-gnu
out=$PWD/target/fuzz
runs=$out/runs.tsv

# What each target has had: its inputs, seconds, most edges and failures.
totals() {
  awk -F '\t' '{ inputs[$1] += $3; seconds[$1] += $4; if ($5 > edges[$1]) edges[$1] = $5; failed[$1] += $6 != "passed" }
    END { for (name in inputs) print name, inputs[name], seconds[name], edges[name], failed[name] }' OFS='\t' "$runs" |
    sort
}
if [ "$amount" = totals ]; then
  [ -e "$runs" ] || { echo "nothing has run"; exit 0; }
  (printf 'target\tinputs\tseconds\tedges\tfailures\n' && totals) | column -t -s $'\t'
  exit 0
fi

for tool in "cargo +nightly" c++; do
  $tool --version >/dev/null 2>&1 || {
    echo "not run: ${tool} is not installed here"
    exit 3
  }
done
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
    gguf) echo executor/tests/golden/*.gguf.head ;;
  esac
}
failed=0
mkdir -p "$out/found"
touch "$runs"
scratch=$(mktemp -d -p "${TMPDIR:-$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)}")
trap 'rm -rf "$scratch"' EXIT

# The words of a target's seeds, which it puts into its inputs: keys, units, names.
words() { # TARGET
  # shellcheck disable=SC2046 # One folder, or several.
  grep -ahorE '[A-Za-z_][A-Za-z_0-9-]{1,31}' $(seeds "$1") | sort | uniq -c | sort -rn | awk 'NR <= 2000 { printf "\"%s\"\n", $2 }'
}

# Runs a target and adds its line to the runs. Inputs longer than some KB are not tried, nor are longer seeds: they are
# slow, and what they hold stands in shorter ones too.
run() { # TARGET FLAG…
  local name=$1 log=$out/$1.log longest=4096 passed=passed TIMEFORMAT='%U %S'
  shift
  case $name in
    gguf) longest=32768 ;;
    # Longer lines are refused.
    machine_words) longest=512 ;;
  esac
  mkdir -p "$out/corpus/$name" "$scratch/seeds/$name"
  # shellcheck disable=SC2046
  find $(seeds "$name") -type f -size -"$((longest + 1))"c -exec cp -t "$scratch/seeds/$name" {} +
  words "$name" >"$scratch/$name.dict"
  { time TMPDIR=$scratch "$out/$target/release/$name" "$@" -timeout=20 -rss_limit_mb=2048 -max_len="$longest" \
    -dict="$scratch/$name.dict" -print_final_stats=1 -artifact_prefix="$out/found/$name-" \
    "$out/corpus/$name" "$scratch/seeds/$name" >"$log" 2>&1 || passed=failed; } 2>"$scratch/time"
  local inputs edges
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' \
    "$name" "$(date -u +%FT%TZ)" "${inputs:-0}" "$(awk '{ print $1 + $2 }' "$scratch/time")" "${edges#cov: }" "$passed" >>"$runs"
  if [ $passed = failed ]; then
    failed=1
    cp "$log" "$out/found/$name.log"
    echo "$name: FAILED, see $out/found/$name.log"
    grep -m 3 -E "panicked|ERROR|SUMMARY" "$log" || true
    return 1
  fi
  echo "$name: ${inputs:-0} inputs, ${edges#cov: } edges"
}

case $amount in
  *x)
    # By speed: what had no run yet comes last. Ten minutes at a time, so that little is lost when it is stopped.
    for name in $(for name in "$@"; do
      totals | awk -v name="$name" '$1 == name && $3 > 0 { speed = $2 / $3 } END { print speed + 0, name }'
    done | sort -rn | cut -d ' ' -f 2); do
      while had=$(totals | awk -v name="$name" '$1 == name { print $2 }') && [ "${had:-0}" -lt "${amount%x}" ]; do
        run "$name" -runs=$((${amount%x} - ${had:-0})) -max_total_time=600 || break
      done
    done
    ;;
  *) for name in "$@"; do run "$name" -max_total_time="$amount" || true; done ;;
esac
exit "$failed"
