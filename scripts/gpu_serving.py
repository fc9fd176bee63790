#!/usr/bin/env python3
"""Simulates every row of sim/data/gpu_serving.csv and prints how far TTFT and TPOT are off.

    cargo build --release --bin fulcrum && scripts/gpu_serving.py [--engine "host_per_step: 1 ms"] [--spread 10]

A row says how many users there were and how long their requests, not how many requests each sent: ten here, as
InferenceMAX sends. It does not say the format of the KV cache either: fp8 where the weights are, but for SGLang, which
keeps bf16 unless told otherwise. With --spread, all prompts and answers are up to so many per cent shorter and longer
than the row says, evenly: users fall out of step; with --spread 0 none is, in no row.
"""
import argparse
import collections
import csv
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FULCRUM = ROOT / "target/release/fulcrum"
ROUNDS = 10
MODELS = {
    "Llama-3.1-70B": "llama-3.1-70b",
    "Qwen3-32B": "qwen3-32b",
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
}

# The rows of this model have the lengths, users and GPUs of InferenceMAX, whose client draws the lengths of prompts and
# answers evenly from these shares of what is said (RANDOM_RANGE_RATIO).
DRAWN = {"Llama-3.1-70B": (0.8, 1)}


def length(tokens, shares):
    less, more = (max(1, round(tokens * share)) for share in shares)
    return f"{{from: {less}, to: {more}}}" if less < more else tokens


def scenario(row, options):
    weights = "fp8" if row["gemm_dtype"] else "bf16"
    kv = "bf16" if row["backend"] == "sglang" else weights
    users = int(row["concurrency"])
    model = row["model"].split("/")[-1]
    shares = DRAWN.get(model, (1, 1))
    if options.spread is not None:
        shares = (1 - options.spread / 100, 1 + options.spread / 100)
    return f"""machine: {row["gpu"].replace("_", "-")}
model: {MODELS[model]}
dtype: {{weights: {weights}, kv: {kv}}}
tensor_parallel: {int(float(row["tensor_parallel"]))}
workload:
  concurrency: {users}
  requests: {ROUNDS * users}
  prompt_tokens: {length(int(row["prompt_tokens"]), shares)}
  output_tokens: {length(int(row["output_tokens"]), shares)}
engine: {{name: {row["backend"]}{", " + options.engine if options.engine else ""}}}
"""


def errors(row, options, folder):
    path = pathlib.Path(folder) / "row.yaml"
    path.write_text(scenario(row, options))
    done = subprocess.run([FULCRUM, "--json", "sim", path], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{row}: {done.stderr}")
    day = json.loads(done.stdout)
    return [
        day["ttft_s"]["mean"] * 1e3 / float(row["ttft_ms"]) - 1,
        day["tpot_s"]["mean"] * 1e3 / float(row["tpot_ms"]) - 1,
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="", help="keys of the scenario's engine")
    parser.add_argument("--spread", type=float, help="per cent; 0 for lengths that are all the same")
    options = parser.parse_args()
    groups = collections.defaultdict(list)
    with open(ROOT / "sim/data/gpu_serving.csv") as table, tempfile.TemporaryDirectory() as folder:
        for row in csv.DictReader(table):
            both = errors(row, options, folder)
            size = "one GPU" if float(row["tensor_parallel"]) == 1 else "several"
            model = row["model"].split("/")[-1].removesuffix("-FP8").removesuffix("-Instruct")
            of_model = (f'{model} {row["backend"]} {row["gpu"].split("_")[0]}', "any number")
            for group in [(row["backend"], size), (row["gpu"], size), of_model, ("all", size)]:
                groups[group].append(both)
    print(f"{'':36} {'rows':>5}  {'TPOT mean':>9} {'median':>7} {'bias':>7}  {'TTFT mean':>9} {'median':>7} {'bias':>7}")
    for (name, size), rows in sorted(groups.items()):
        text = f"{name + ', ' + size:36} {len(rows):5}"
        for which in (1, 0):
            of = [row[which] for row in rows]
            size_of = [abs(error) for error in of]
            text += f"  {statistics.mean(size_of):9.1%} {statistics.median(size_of):7.1%} {statistics.mean(of):+7.1%}"
        print(text)


main()
