#!/usr/bin/env bash
# Opens reports in headless Chromium (Debian's `chromium`, playwright-core from npm into the folder named as argument, kept for
# the next time, or into one that is removed again) and checks them as a reader would: no errors on the console and nothing
# fetched, hover, filters and keys work, nothing is wider than a phone, names are no markup. Prints sizes and times; a sweep of
# 100,000 points must be painted within 2 s and be at most 15 MB, a report of 500 points be made within 3 s. Pictures (light,
# dark, phone, print) are left in the folder. `FULCRUM=path` names the command, else it is built in release.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
  mkdir -p "$1" && tools=$(cd "$1" && pwd)
else
  tools=$(mktemp -d)
  trap 'rm -rf "$tools"' EXIT
fi
if [ -z "${FULCRUM:-}" ]; then
  cargo build --release --locked --bin fulcrum
  FULCRUM=$PWD/target/release/fulcrum
fi
[ -e "$tools/node_modules/playwright-core" ] || npm install --silent --prefix "$tools" playwright-core
cp scripts/check_report.mjs "$tools/"
cd "$tools"

cat > batch.yaml <<'SCENARIO'
machine: spr-a100
model: opt-30b
dtype: {weights: bf16, kv: bf16}
workload: {batch: 4, prompt_tokens: 512, output_tokens: 16}
objective: latency
SCENARIO
cat > day.yaml <<'SCENARIO'
machine: spr-a100
model: opt-13b
dtype: {weights: bf16, kv: bf16}
workload: {arrivals: {poisson: 2 req/s}, requests: 300, prompt_tokens: {mean: 500, cv: 1}, output_tokens: 60}
engine: vllm
slo: {ttft: 1 s, tpot: 40 ms}
SCENARIO
rm -f sweep.csv points.csv load.csv
"$FULCRUM" plan batch.yaml -o plan.yaml > /dev/null
"$FULCRUM" sim plan.yaml --trace trace.json > /dev/null
"$FULCRUM" plan batch.yaml --grid --set workload.batch=1..64*2 --set workload.prompt_tokens=128,512,1024,1984 -o grid.yaml > /dev/null
"$FULCRUM" plan batch.yaml --front ttft,tpot -o front.csv > /dev/null
"$FULCRUM" sim day.yaml --requests requests.csv --series series.csv --every 5s --json > day.json
"$FULCRUM" sweep day.yaml --set 'workload.arrivals.poisson=0.5 req/s,1 req/s,2 req/s,4 req/s' --set machine=spr-a100,spr-h100 -o load.csv > /dev/null
"$FULCRUM" sweep batch.yaml --set workload.batch=1..100 --set workload.prompt_tokens=128,256,512,1024,1536 -o points.csv > /dev/null
# A hundred thousand rows with the columns of a real sweep of serving, all of them different; one name would be markup.
python3 - <<'PYTHON'
import csv, random
with open("points.csv", newline="") as file:
    header, first = next(rows := csv.reader(file)), next(rows)
random.seed(1)
keys, measures = header.index("status"), [i for i, name in enumerate(header) if header.index("plan") < i < header.index("version")]
with open("sweep.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(header)
    for point in range(100_000):
        row = [str(point), str(1 + point % 100), str(2 ** (point % 12))] + first[3:]
        for index in measures:
            row[index] = repr(random.lognormvariate(0, 1) * (1 + point % 100))
        row[header.index("plan")] = ["planned", "all-gpu", "<img src=x onerror=alert(1)>"][point % 3]
        table.writerow(row)
PYTHON
now() { date +%s%N; }
timed() { local start; start=$(now); "$@" > /dev/null; echo $(( ($(now) - start) / 1000000 )); }
echo "a report of $(($(wc -l < points.csv) - 1)) points: $(timed "$FULCRUM" report points.csv -o points.html) ms"
echo "a report of $(($(wc -l < sweep.csv) - 1)) points: $(timed "$FULCRUM" report sweep.csv -o sweep.html) ms"
echo "a report of all kinds: $(timed "$FULCRUM" report plan.yaml trace.json grid.yaml front.csv day.json requests.csv series.csv load.csv -o all.html --plots plots) ms"
node check_report.mjs "$(command -v chromium)"
