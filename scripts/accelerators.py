#!/usr/bin/env python3
"""Simulates the runs of LLM-Inference-Bench on A100, H100, MI250 and Gaudi 2, and prints how far the times are off.

    cargo build --release --bin fulcrum && scripts/accelerators.py [--engines scenarios/engines] [--rows rows.csv] [FULCRUM]

Each row of sim/data/llm_inference_bench.csv is a number of requests of one length that arrive together. The table names
no versions: the engines are those of 2024. Its GPUs of MI250 are dies, two to a card: its scripts give vLLM twice as many
ranks as the table has cards.

With llama.cpp (llama-bench -pg N,N -b B) a row is one request whose prompt enters in steps of B tokens.

Its scripts for DeepSpeed-MII repeat one prompt (Deepspeed-MII/A100/pipeline.py), so that all requests choose the same
experts. Those of TensorRT-LLM do so as well: batches of 16 of Mixtral-8x7B take less time for each token than reading all
experts once would at the peak of the memory. Those of vLLM draw each prompt at random.
Left out are rows that take less time than the same batch with fewer tokens: their answers ended early (13 of 1,241).
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSIONS = {"vllm": ", version: 0.5", "trtllm": ", version: 0.11", "llama.cpp": ', version: "3700"'}
# The engines whose batches repeat one prompt.
REPEATED = ("trtllm", "deepspeed-mii", "optimum-habana")


def measured():
    """The rows, without those whose answers ended early."""
    with open(ROOT / "sim/data/llm_inference_bench.csv") as table:
        rows = list(csv.DictReader(table))
    batch = lambda row: tuple(row[key] for key in ("gpu", "gpus", "engine", "model", "batch"))
    times = collections.defaultdict(list)
    for row in rows:
        times[batch(row)].append((int(row["tokens"]), float(row["seconds"])))
    shorter = lambda row: [seconds for tokens, seconds in times[batch(row)] if tokens < int(row["tokens"])]
    return [row for row in rows if float(row["seconds"]) >= max(shorter(row), default=0.0)]


def requests_together(row):
    """The scenario of requests that arrive together."""
    repeated = row["engine"] in REPEATED and "Mixtral" in row["model"] and row["batch"] != "1"
    return f"""machine: {row["gpu"]}
dtype: {{weights: bf16, kv: bf16}}
tensor_parallel: {row["gpus"]}
workload: {{concurrency: {row["batch"]}, requests: {row["batch"]}, {lengths(row)}}}
{"expert_skew: 8" if repeated else ""}
"""


def one_request(row):
    """The scenario of a request whose prompt enters in steps of so many tokens, on GPUs that compute the layers in turn."""
    return f"""machine: {{gpu: {{part: {row["gpu"]}, count: {row["gpus"]}}}, cpu: epyc-7742, dram: {{capacity: 512 GB}}, link: pcie4-x16}}
dtype: f16
workload: {{concurrency: 1, requests: 1, {lengths(row)}}}
placement: {{gpu_layers: 99, micro_batch: {row["batch"]}}}
"""


def lengths(row):
    return f'prompt_tokens: {row["tokens"]}, output_tokens: {row["tokens"]}'


def ratio(row, options):
    """Our time divided by the measured one; the error's text where there is none."""
    engine = row["engine"]
    file = f"file: {options.engines.resolve()}/{engine}.yaml" if options.engines else f"name: {engine}"
    scenario = (one_request if engine == "llama.cpp" else requests_together)(row)
    scenario += f'model: {row["model"]}\nengine: {{{file}{VERSIONS.get(engine, "")}}}\n'
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(scenario)
        file.flush()
        done = subprocess.run([options.fulcrum, "--json", "sim", file.name], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.replace(f"{file.name}:", "").strip()
    seconds = json.loads(done.stdout)["duration_s"]
    return seconds / float(row["seconds"]) if seconds else "no request was served"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", type=pathlib.Path, help="a folder with an engine's file for each engine")
    parser.add_argument("--rows", type=pathlib.Path, help="where to write every row beside our time ÷ the measured one")
    parser.add_argument("fulcrum", nargs="?", default=ROOT / "target/release/fulcrum")
    options = parser.parse_args()
    rows = measured()
    groups, refused = collections.defaultdict(list), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda row: ratio(row, options), rows))
        for row, ours in zip(rows, answers):
            if isinstance(ours, str):
                refused[f'{row["gpu"]} × {row["gpus"]}, {row["model"]}: {ours}'] += 1
                continue
            gpus = f'{row["gpus"]} × {row["gpu"]}'
            of_engine = [gpus, row["model"], f'batch {row["batch"]}']
            for group in ["all", row["engine"], *(f'{row["engine"]}, {part}' for part in of_engine)]:
                groups[group].append(ours)
    print(f'{"":34} rows  median error  90th percentile  median ratio of times')
    for group, ratios in sorted(groups.items()):
        errors = sorted(abs(1 / one - 1) for one in ratios)
        worst = errors[int(0.9 * (len(errors) - 1))]
        median = statistics.median(ratios)
        print(f"{group:34} {len(ratios):4} {statistics.median(errors):13.1%} {worst:16.1%} {median:22.2f}")
    for why, count in refused.most_common():
        print(f"not answered, {count} rows: {why}")
    if options.rows:
        with open(options.rows, "w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0], "ratio"])
            writer.writeheader()
            writer.writerows(row | {"ratio": ours} for row, ours in zip(rows, answers))


main()
