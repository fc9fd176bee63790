#!/usr/bin/env bash
# Kills sweeps (kill -9) five times each at moments drawn at random, goes on with --resume after each, and compares the table, byte by byte,
# with that of a sweep that nobody disturbed. `check_sweep.sh [FOLDER [BATCHES]]`:
#   - of 250 points for each batch (10 where nothing else is said, 400 for 100,000 points), each planned and simulated;
#   - of 100,000 points that are those with a key besides which no plan reads, so that their numbers are in the cache.
# Prints times and the largest resident memory, also of 1,000,000 such points. `FULCRUM=path` names the command, else it is built
# in release.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${FULCRUM:-}" ]; then
  cargo build --release --locked --bin fulcrum
  FULCRUM=$PWD/target/release/fulcrum
fi
if [ $# -gt 0 ]; then
  mkdir -p "$1" && cd "$1"
else
  cd "$(mktemp -d)"
fi
batches=${2:-10}
points=$((batches * 250))
cat > s.yaml <<'SCENARIO'
machine: h100-sxm
model: llama-3.2-1b
workload: {batch: 1, prompt_tokens: 32, output_tokens: 8}
SCENARIO
rm -rf -- *.csv *.journal kept
axes=(--set "workload.batch=1..$batches" --set workload.prompt_tokens=32..80+2 --set workload.output_tokens=8..152+16)

# Runs a command; says how long it took and the most memory that it held.
measured() {
  local what=$1 start peak=0 now
  shift
  start=$(date +%s%N)
  "$@" > said.txt 2> errors.txt &
  local child=$!
  while now=$(awk '/^VmHWM/ {print $2}' "/proc/$child/status" 2> /dev/null) && [ -n "$now" ]; do
    peak=$now
    sleep 0.1
  done
  wait "$child" || { cat errors.txt; exit 1; }
  local ms=$((($(date +%s%N) - start) / 1000000))
  echo "$what: $((ms / 1000)).$((ms % 1000 / 100)) s, $((peak / 1024)) MiB at most"
}

# How many rows the journal has, its first line aside.
rows() {
  [ ! -e killed.csv.journal ] && echo 0 || echo $(($(wc -l < killed.csv.journal) - 1))
}

# killed POINTS ARGUMENT…: the sweep undisturbed and killed, and whether both tables are the same.
killed() {
  local points=$1 kill child until
  shift
  measured "$points points, undisturbed" "$FULCRUM" sweep s.yaml "$@" -o whole.csv
  for kill in 1 2 3 4 5; do
    # Somewhere in the fifth that belongs to it.
    until=$((points * (kill - 1) / 5 + RANDOM * points / 5 / 32768 + 1))
    "$FULCRUM" sweep s.yaml "$@" --resume -o killed.csv > /dev/null 2>&1 &
    child=$!
    while [ "$(rows)" -lt "$until" ] && kill -0 "$child" 2> /dev/null; do
      sleep "0.0$((RANDOM % 9 + 1))"
    done
    kill -9 "$child"
    wait "$child" 2> /dev/null || true
    echo "kill $kill: $(rows) points are there"
  done
  measured "the rest of them" "$FULCRUM" sweep s.yaml "$@" --resume -o killed.csv
  cmp whole.csv killed.csv
  echo "the tables are the same, byte by byte: $(wc -l < whole.csv) lines, $(grep -c ',ok,' whole.csv) ok"
}

killed "$points" "${axes[@]}"
measured "$points points, into a cache" "$FULCRUM" sweep s.yaml "${axes[@]}" --cache kept -o cached.csv
cmp whole.csv cached.csv
killed $((100000 / points * points)) "${axes[@]}" --cache kept --set "capacity.years=1..$((100000 / points))"
measured "$((1000000 / points * points)) points, from the cache" "$FULCRUM" sweep s.yaml "${axes[@]}" --cache kept \
  --set "capacity.years=1..$((1000000 / points))" -o million.csv
echo "$(wc -l < million.csv) lines"
