#!/usr/bin/env python3
"""Simulates the rows of MLPerf Inference v4.1 in sim/data/mlperf.csv and prints how far the rates and times are off.

    cargo build --release --bin fulcrum && scripts/mlperf.py [--rows rows.csv] [FULCRUM]

Offline, all requests are there at once, and the rate is that between two numbers of them, so that filling and draining
do not count, as they do not in a run of ten minutes and more; a server's come as a Poisson process at the rate that the
row states. A row says neither how many GPUs work as one nor how long the prompts were. GPUs are grouped in the way that is
fastest offline, the groups share the requests, the lengths are those of the data sets as PROMPTS says, and GPT-J searches
with four beams. Weights are fp8 on GPUs (nvfp4 on a B200), int8 on CPUs. Engines have the settings that the submissions'
own files state (closed/NVIDIA/configs and code/harness of inference_results_v4.1), which other submitters use as well.

The published times of servers are means at a rate within a few per cent of what the machine can do, where a queue turns an
error of 5 % in that rate into a factor. So they are compared twice: at the published rate, and at the rate that is the same
share of our own offline rate as the published one is of the system's own.
Rows of GPUs with a power limit (MaxQ) are left out: a profile does not know the clocks that such a limit leaves.
"""
import argparse
import collections
import concurrent.futures
import csv
import functools
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The mean of a data set's prompts and their coefficient of variation, and an answer's tokens where rows do not
# say them: OpenOrca up to 1,024 tokens; a third of each OpenOrca up to 2,048 tokens (about 400), GSM8K with worked examples
# before each question (about 650; the reference implementation shows one of 662) and MBXP (about 200); CNN/DailyMail.
PROMPTS = {"llama-2-70b": (350, 0.8, None), "mixtral-8x7b": (420, 0.65, None), "gpt-j-6b": (900, 0.45, 69)}
BEAMS = {"gpt-j-6b": 4}
ENGINES = {"TensorRT": "trtllm, version: 0.11", "vLLM 0.4.3": "vllm, version: 0.4", "vLLM": "vllm, version: 0.5"}
# Sequences that run at once, offline and as a server, where a submission's file states them.
BATCHES = {
    "llama-2-70b": {"h100-sxm": (896, 1024), "h100-nvl": (1300, 640), "h200-sxm": (806, 896), "gh200-141": (806, 806)},
    "gpt-j-6b": {"h100-sxm": (192, 256), "h100-pcie": (192, 128), "h200-sxm": (396, 396), "gh200-141": (396, 396),
                 "gh200-96": (480, 196), "l40s": (100, 128)},
}


def engine(row, server):
    """The engine with its settings. NVIDIA's harness admits a request as soon as its prompt has room (max_util) and gives
    the KV cache 0.95 of what is free, 0.9 for Llama-2-70B."""
    name = next((e for name, e in ENGINES.items() if row["framework"].startswith(name)), ENGINES["TensorRT"])
    settings = [f"name: {name}"]
    if name.startswith("trtllm"):
        settings += ["reserve: prompt", f'gpu_memory_utilization: {0.9 if row["model"] == "llama-2-70b" else 0.95}']
        settings += ["max_num_batched_tokens: 16384"] if row["model"] == "mixtral-8x7b" else []
        batch = BATCHES.get(row["model"], {}).get(row["gpu"])
        settings += [f"max_num_seqs: {batch[server]}"] if batch else []
    return "{" + ", ".join(settings) + "}"


# Requests of a group of GPUs; a CPU's are fewer.
REQUESTS = {True: 3000, False: 300}


def scenario(row, group, server=None, times=1):
    """`server` is the rate of requests of all groups; without one it is an offline run."""
    prompt, spread, answer = PROMPTS[row["model"]]
    gpus = int(row["gpus"])
    replicas = max(1, gpus // group)
    requests = REQUESTS[gpus > 0] * times
    if gpus:
        weights, kv = ("nvfp4" if row["gpu"].startswith("b200") else "fp8"), "fp8"
        shared = f"tensor_parallel: {group}\nengine: {engine(row, server is not None)}\n"
        machine = row["gpu"]
    else:
        weights, kv, shared = "int8", "bf16", ""
        machine = f"{{cpu: {row['cpu']}, sockets: 2, dram: {{capacity: 1 TB}}}}"
    load = f"arrivals: {{poisson: {server / replicas} req/s}}" if server else f"concurrency: {requests}"
    return f"""machine: {machine}
model: {row["model"]}
dtype: {{weights: {weights}, kv: {kv}}}
{shared}workload:
  {load}
  requests: {requests}
  beams: {BEAMS.get(row["model"], 1)}
  prompt_tokens: {{mean: {prompt}, cv: {spread}}}
  output_tokens: {{mean: {answer or float(row["answer_tokens"])}, cv: {0.1 if answer else 0.75}}}
""", replicas


@functools.cache
def simulated(fulcrum, text):
    """The day of one group; the error's text where there is none."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([fulcrum, "--json", "sim", file.name], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.replace(f"{file.name}:", "").strip()


def offline_rate(fulcrum, row, group):
    """Requests per second of all groups; the error's text where there are none."""
    texts = [scenario(row, group, times=times) for times in (1, 2)]
    days = [simulated(fulcrum, text) for text, _ in texts]
    if wrong := next((day for day in days if isinstance(day, str)), None):
        return wrong
    done = [day["requests"]["completed"] for day in days]
    if done[0] == done[1]:
        return "no request was served"
    return texts[0][1] * (done[1] - done[0]) / (days[1]["duration_s"] - days[0]["duration_s"])


def system(row):
    return row["submitter"], row["platform"], row["gpu"], row["gpus"], row["model"]


def answered(fulcrum, offline, row):
    """Name of the figure, ours and theirs, for each figure of a row; the error's text where there is none."""
    gpus = int(row["gpus"])
    groups = [group for group in (1, 2, 4, 8) if gpus % group == 0 and group <= gpus] or [1]
    rates = {group: offline_rate(fulcrum, row, group) for group in groups}
    served = {group: rate for group, rate in rates.items() if not isinstance(rate, str)}
    if not served:
        return rates[groups[-1]]
    best = max(served, key=served.get)
    kind = "accelerators" if gpus else "CPUs"
    if row["scenario"] == "offline":
        return [(f"offline, {kind}", served[best], float(row["samples_per_s"]))]
    rates = {"server": float(row["target_qps"])}
    if system(row) in offline:
        rates["server at its share"] = rates["server"] * served[best] / offline[system(row)]
    figures = []
    for name, rate in rates.items():
        # A day long enough that its beginning, with an empty engine, counts for little.
        day = simulated(fulcrum, scenario(row, best, rate, 4)[0])
        if isinstance(day, str):
            return day
        times = [("TTFT", "ttft_s", "ttft_mean_ms"), ("TPOT", "tpot_s", "tpot_mean_ms")]
        times = times if row["ttft_mean_ms"] else [("latency", "e2el_s", "latency_mean_ms")]
        figures += [(f"{name}, {kind}: {time}", day[ours]["mean"] * 1e3, float(row[theirs])) for time, ours, theirs in times]
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows")
    parser.add_argument("fulcrum", nargs="?", default=ROOT / "target/release/fulcrum")
    options = parser.parse_args()
    with open(ROOT / "sim/data/mlperf.csv") as table:
        rows = [row for row in csv.DictReader(table) if "MaxQ" not in row["platform"]]
    offline = {system(row): float(row["samples_per_s"]) for row in rows if row["scenario"] == "offline"}
    groups, refused = collections.defaultdict(list), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda row: answered(options.fulcrum, offline, row), rows))
    written = []
    for row, answer in zip(rows, answers):
        if isinstance(answer, str):
            refused[f'{row["gpus"]} × {row["gpu"] or row["cpu"]}, {row["model"]}: {answer[:90]}'] += 1
            continue
        for name, ours, theirs in answer:
            written.append({**row, "figure": name, "ours": ours, "measured": theirs})
            for group in [name, f'{name}, {row["model"]}', f'{name}, {row["gpu"] or row["cpu"]}']:
                groups[group].append(ours / theirs)
    print(f'{"":52} rows  median error    mean  median ratio')
    for group, ratios in sorted(groups.items()):
        errors = [abs(one - 1) for one in ratios]
        print(f"{group:52} {len(ratios):4} {statistics.median(errors):13.1%} {statistics.mean(errors):7.1%} "
              f"{statistics.median(ratios):13.2f}")
    for why, count in refused.most_common():
        print(f"not answered, {count} rows: {why}")
    if options.rows:
        with open(options.rows, "w") as file:
            writer = csv.DictWriter(file, written[0].keys())
            writer.writeheader()
            writer.writerows(written)


main()
