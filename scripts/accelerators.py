#!/usr/bin/env python3
"""Simulates batches of requests of LLM-Inference-Bench on A100s and H100s, and prints how far the times are off.

    cargo build --release --bin fulcrum && scripts/accelerators.py [FULCRUM]

Each row of sim/data/llm_inference_bench.csv is a number of requests of one length that arrive together. The table names
no versions: the engines are those of 2024.
"""
import collections
import concurrent.futures
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FULCRUM = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/fulcrum"
VERSIONS = {"vllm": ", version: 0.5"}


def ratio(row):
    """Our time divided by the measured one; the error's text where there is none."""
    scenario = f"""machine: {row["gpu"]}
model: {row["model"]}
dtype: {{weights: bf16, kv: bf16}}
tensor_parallel: {row["gpus"]}
workload:
  concurrency: {row["batch"]}
  requests: {row["batch"]}
  prompt_tokens: {row["tokens"]}
  output_tokens: {row["tokens"]}
engine: {{name: {row["engine"]}{VERSIONS.get(row["engine"], "")}}}
"""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(scenario)
        file.flush()
        done = subprocess.run([FULCRUM, "--json", "sim", file.name], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.replace(f"{file.name}:", "").strip()
    seconds = json.loads(done.stdout)["duration_s"]
    return seconds / float(row["seconds"]) if seconds else "no request was served"


def main():
    with open(ROOT / "sim/data/llm_inference_bench.csv") as table:
        rows = list(csv.DictReader(table))
    groups, refused = collections.defaultdict(list), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for row, ours in zip(rows, pool.map(ratio, rows)):
            if isinstance(ours, str):
                refused[f'{row["gpu"]} × {row["gpus"]}, {row["model"]}: {ours}'] += 1
                continue
            gpus = f'{row["gpus"]} × {row["gpu"]}'
            for group in ["all", row["engine"], f'{row["engine"]}, {gpus}', f'{row["engine"]}, batch {row["batch"]}']:
                groups[group].append(ours)
    print(f'{"":34} rows  median error  90th percentile  median ratio of times')
    for group, ratios in sorted(groups.items()):
        errors = sorted(abs(1 / one - 1) for one in ratios)
        worst = errors[int(0.9 * (len(errors) - 1))]
        median = statistics.median(ratios)
        print(f"{group:34} {len(ratios):4} {statistics.median(errors):13.1%} {worst:16.1%} {median:22.2f}")
    for why, count in refused.most_common():
        print(f"not answered, {count} rows: {why}")


main()
