#!/usr/bin/env python3
"""Simulates the rows of MLPerf Inference v4.1 in sim/data/mlperf.csv and prints how far the rates and times are off.

    cargo build --release --bin fulcrum && scripts/mlperf.py [--engines scenarios/engines] [--rows rows.csv] [FULCRUM]

Offline, all requests are there at once, and the rate is that between two numbers of them, so that filling and draining
do not count, as they do not in a run of ten minutes and more; a server's come as a Poisson process at the rate that the
row states. A row says neither how many GPUs work as one nor how long the prompts were. GPUs are grouped as the submissions'
own files say, and where none says so in the way that is fastest offline; the groups share the requests, the lengths are
those of the data sets as PROMPTS says, and GPT-J searches with four beams. Weights are fp8 on GPUs (nvfp4 on a B200), int8 on
CPUs. Engines have the settings that those files state (closed/NVIDIA/configs, code/harness and closed/Intel/code of
inference_results_v4.1), which other submitters use as well. A CPU's processes each have a machine of their own: their
cores, and their part of its memory's bandwidth.

The published times of servers are means at a rate within a few per cent of what the machine can do, where a queue turns an
error of 5 % in that rate into a factor. So they are compared in four ways:
- server: at the published rate;
- server at its share: at the rate that is the same share of our own offline rate as the published one is of the system's own;
- server by its rule: at the highest rate whose 99th percentiles keep MLPerf's limits here, as submitters choose theirs;
- server, as many at work: as many requests at once as the published rate × latency says, all the time. TTFT is left out: what
  such a loop begins with decides it.
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
OPTIONS = argparse.Namespace(engines=None)
# The mean of a data set's prompts and their coefficient of variation, and an answer's tokens where rows do not
# say them: OpenOrca up to 1,024 tokens; a third of each OpenOrca up to 2,048 tokens (about 400), GSM8K with worked examples
# before each question (about 650; the reference implementation shows one of 662) and MBXP (about 200); CNN/DailyMail.
PROMPTS = {"llama-2-70b": (350, 0.8, None), "mixtral-8x7b": (420, 0.65, None), "gpt-j-6b": (900, 0.45, 69)}
BEAMS = {"gpt-j-6b": 4}
ENGINES = {"TensorRT": ("trtllm", "0.11"), "vLLM 0.4.3": ("vllm", "0.4"), "vLLM": ("vllm", "0.5")}
# GPUs that work as one, where a submission's file states it.
GROUPS = {
    "llama-2-70b": {"h100-sxm": 2, "h100-nvl": 2, "h200-sxm": 1, "gh200-141": 1},
    "gpt-j-6b": {"h100-sxm": 1, "h100-pcie": 1, "h200-sxm": 1, "gh200-141": 1, "gh200-96": 1, "l40s": 1},
}
# Processes, cores of each and requests of its batch, offline and as a server.
PROCESSES = {"xeon-8592p": ((16, 8, 12), (4, 32, 4)), "xeon-6980p": ((30, 8, 12), (6, 40, 4))}
# The peak of a socket's memory in GB/s, with the modules that the rows state.
BANDWIDTHS = {"xeon-8592p": 358.4, "xeon-6980p": 844.8}
# MLPerf's limits on the 99th percentiles of TTFT and TPOT.
LIMITS = {"ttft_s": 2.0, "tpot_s": 0.2}
# Sequences that run at once, offline and as a server, where a submission's file states them.
BATCHES = {
    "llama-2-70b": {"h100-sxm": (896, 1024), "h100-nvl": (1300, 640), "h200-sxm": (806, 896), "gh200-141": (806, 806)},
    "gpt-j-6b": {"h100-sxm": (192, 256), "h100-pcie": (192, 128), "h200-sxm": (396, 396), "gh200-141": (396, 396),
                 "gh200-96": (480, 196), "l40s": (100, 128)},
}


def engine(row, server):
    """The engine with its settings. NVIDIA's harness admits a request as soon as its prompt has room (max_util) and gives
    the KV cache 0.95 of what is free, 0.9 for Llama-2-70B."""
    name, version = next((e for name, e in ENGINES.items() if row["framework"].startswith(name)), ENGINES["TensorRT"])
    settings = [f"file: {OPTIONS.engines.resolve()}/{name}.yaml" if OPTIONS.engines else f"name: {name}", f"version: {version}"]
    if name == "trtllm":
        settings += ["reserve: prompt", f'gpu_memory_utilization: {0.9 if row["model"] == "llama-2-70b" else 0.95}']
        settings += ["max_num_batched_tokens: 16384"] if row["model"] == "mixtral-8x7b" else []
        batch = BATCHES.get(row["model"], {}).get(row["gpu"])
        settings += [f"max_num_seqs: {batch[server]}"] if batch else []
    elif row["gpu"] == "mi300x":
        # Its rate × latency says that 360 to 410 were at work, more than vLLM's default of 256.
        settings += ["max_num_seqs: 1024"]
    return "{" + ", ".join(settings) + "}"


# Requests of a group of GPUs; a CPU's process has fewer.
REQUESTS = {True: 3000, False: 300}


def replicas(row, group):
    """How many groups of GPUs, or processes, share the requests."""
    gpus = int(row["gpus"])
    return max(1, gpus // group) if gpus else PROCESSES[row["cpu"]][row["scenario"] == "server"][0]


def scenario(row, group, load=None, times=1, server=False):
    """The requests of one group. Without a `load` they are all there at once."""
    prompt, spread, answer = PROMPTS[row["model"]]
    requests = REQUESTS[int(row["gpus"]) > 0] * times
    if int(row["gpus"]):
        weights, kv = ("nvfp4" if row["gpu"].startswith("b200") else "fp8"), "fp8"
        shared = f"tensor_parallel: {group}\nengine: {engine(row, server)}\n"
        machine = row["gpu"]
    else:
        weights, kv = "int8", "bf16"
        processes, cores, batch = PROCESSES[row["cpu"]][server]
        bandwidth = 2 * BANDWIDTHS[row["cpu"]] / processes
        shared = f"engine: {{name: fulcrum, max_num_seqs: {batch}}}\n"
        machine = f"{{cpu: {row['cpu']}, cores: {cores}, dram: {{capacity: 64 GB, bandwidth: {bandwidth:.1f} GB/s}}}}"
    return f"""machine: {machine}
model: {row["model"]}
dtype: {{weights: {weights}, kv: {kv}}}
{shared}workload:
  {load or f"concurrency: {requests}"}
  requests: {requests}
  beams: {BEAMS.get(row["model"], 1)}
  prompt_tokens: {{mean: {prompt}, cv: {spread}}}
  output_tokens: {{mean: {answer or float(row["answer_tokens"])}, cv: {0.1 if answer else 0.75}}}
"""


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
    days = [simulated(fulcrum, scenario(row, group, times=times)) for times in (1, 2)]
    if wrong := next((day for day in days if isinstance(day, str)), None):
        return wrong
    done = [day["requests"]["completed"] for day in days]
    if done[0] == done[1]:
        return "no request was served"
    offline = replicas({**row, "scenario": "offline"}, group)
    return offline * (done[1] - done[0]) / (days[1]["duration_s"] - days[0]["duration_s"])


def served_day(fulcrum, row, group, rate):
    """The day of a server of `rate` requests per second. It is long enough that its beginning, with an empty engine, counts
    for little."""
    load = f"arrivals: {{poisson: {rate / replicas(row, group)} req/s}}"
    return simulated(fulcrum, scenario(row, group, load, 4, True))


def day_by_rule(fulcrum, row, group):
    """The highest rate from half to one and a half of the published one that keeps the limits, to 0.4 %, and its day."""
    published = float(row["target_qps"])
    low, high, kept = 0.5 * published, 1.5 * published, None
    for _ in range(8):
        rate = (low + high) / 2
        day = served_day(fulcrum, row, group, rate)
        if isinstance(day, dict) and all(day[time]["p99"] <= limit for time, limit in LIMITS.items()):
            low, kept = rate, day
        else:
            high = rate
    return low, kept


def day_of_as_many(fulcrum, row, group):
    """The day of a closed loop with as many requests at once as Little's law says of the row."""
    seconds = float(row["ttft_mean_ms"]) + (float(row["answer_tokens"]) - 1) * float(row["tpot_mean_ms"])
    users = max(1, round(float(row["target_qps"]) / replicas(row, group) * seconds / 1e3))
    return simulated(fulcrum, scenario(row, group, f"concurrency: {users}", 4, True))


def system(row):
    return row["submitter"], row["platform"], row["gpu"], row["gpus"], row["model"]


def fastest_group(fulcrum, row):
    """How many GPUs work as one, and the offline rate of all; the error's text in place of the rate where there is none."""
    gpus = int(row["gpus"])
    stated = GROUPS.get(row["model"], {}).get(row["gpu"])
    groups = [stated] if stated else [group for group in (1, 2, 4, 8) if gpus % group == 0 and group <= gpus] or [1]
    rates = {group: offline_rate(fulcrum, row, group) for group in groups}
    served = {group: rate for group, rate in rates.items() if not isinstance(rate, str)}
    best = max(served, key=served.get) if served else groups[-1]
    return best, rates[best]


def answered(fulcrum, offline, row):
    """Name of the figure, ours and theirs, for each figure of a row; the error's text where there is none."""
    group, own = fastest_group(fulcrum, row)
    if isinstance(own, str):
        return own
    kind = "accelerators" if int(row["gpus"]) else "CPUs"
    if row["scenario"] == "offline":
        return [(f"offline, {kind}", own, float(row["samples_per_s"]))]
    published = float(row["target_qps"])
    days = {"server": served_day(fulcrum, row, group, published)}
    if system(row) in offline:
        days["server at its share"] = served_day(fulcrum, row, group, published * own / offline[system(row)])
    figures = []
    times = [("TTFT", "ttft_s", "ttft_mean_ms"), ("TPOT", "tpot_s", "tpot_mean_ms")]
    if row["ttft_mean_ms"]:
        rate, day = day_by_rule(fulcrum, row, group)
        if day:
            days["server by its rule"] = day
            figures.append((f"server by its rule, {kind}: rate", rate, published))
        day = day_of_as_many(fulcrum, row, group)
        if isinstance(day, str):
            return day
        figures.append((f"server, as many at work, {kind}: TPOT", day["tpot_s"]["mean"] * 1e3, float(row["tpot_mean_ms"])))
    else:
        times = [("latency", "e2el_s", "latency_mean_ms")]
    for name, day in days.items():
        if isinstance(day, str):
            return day
        figures += [(f"{name}, {kind}: {time}", day[ours]["mean"] * 1e3, float(row[theirs])) for time, ours, theirs in times]
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", help="where to write every figure beside ours")
    parser.add_argument("--engines", type=pathlib.Path, help="a folder with an engine's file for each engine")
    parser.add_argument("--only", default="", help="rows whose GPU or CPU has this in its name, or whose model has")
    parser.add_argument("fulcrum", nargs="?", default=ROOT / "target/release/fulcrum")
    options = parser.parse_args(namespace=OPTIONS)
    with open(ROOT / "sim/data/mlperf.csv") as table:
        rows = [row for row in csv.DictReader(table) if "MaxQ" not in row["platform"]]
    rows = [row for row in rows if options.only in row["gpu"] + row["cpu"] + row["model"]]
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
