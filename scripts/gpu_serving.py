#!/usr/bin/env python3
"""Simulates every row of sim/data/gpu_serving.csv and prints how far TTFT and TPOT are off.

    cargo build --release --bin fulcrum && scripts/gpu_serving.py [--engine "host_per_step: 1 ms"]… [--spread 10]
    scripts/gpu_serving.py --engines scenarios/engines    # engines from files, without building again
    scripts/gpu_serving.py --rows rows.csv                # every row beside what was simulated
    scripts/gpu_serving.py --h200 h200_serving.csv        # another table: 8 H200, vLLM

A row says how many users there were and how long their requests, not how many requests each sent: ten here, as
InferenceMAX sends. It does not say the format of the KV cache either: fp8 where the weights are, but for SGLang, which
keeps bf16 unless told otherwise. With --spread, all prompts and answers are up to so many per cent shorter and longer
than the row says, evenly: users fall out of step; with --spread 0 none is, in no row.

--engine may be given several times. Each is then one candidate for every engine's constants. The second table takes for
each machine (a GPU and how many) and each engine the candidate that is best on all other machines (the mean errors of
TPOT and TTFT together): so it says how far off a machine is to which nothing was fitted.
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FULCRUM = pathlib.Path(os.environ.get("FULCRUM", ROOT / "target/release/fulcrum"))
ROUNDS = 10
# A sweep's runs of each length go up to so many users at least, whether the table has them or not: nothing of a length
# that the table has for 4 and 8 users alone is found in the runs of the next one.
FEWEST_LARGEST = 16
# How the GPUs divide a model, by what a file's name calls it.
DIVISIONS = {
    "tp": "tensor_parallel: {0}",
    "tep": "tensor_parallel: {0}\nexpert_parallel: true",
    "dep": "tensor_parallel: 1\ndata_parallel: {0}\nexpert_parallel: true",
}
MODELS = {
    "Llama-3.1-70B": "llama-3.1-70b",
    "Qwen3-32B": "qwen3-32b",
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "GLM-5-FP8": "glm-5",
    "MiniMax-M2.5": "minimax-m2.5",
}


# Rows without a version have InferenceMAX's loads: its versions of autumn 2025.
UNNAMED = {"vllm": "0.11", "trtllm": "1.1", "sglang": "0.5"}


def drawn(row):
    """The shares of the stated lengths between which the load's client draws them."""
    # The rows of this model have the lengths, users and GPUs of InferenceMAX (RANDOM_RANGE_RATIO).
    if row["model"].endswith("Llama-3.1-70B"):
        return (0.8, 1)
    # Rows of round thousands are of another client, whose users do not move in step: their TTFT is a fraction of that
    # of users in step. Per cents do not matter, only that there are some.
    return (0.99, 1.01) if int(row["prompt_tokens"]) % 1000 == 0 else (1, 1)


def length(tokens, shares):
    less, more = (max(1, round(tokens * share)) for share in shares)
    return f"{{from: {less}, to: {more}}}" if less < more else tokens


def changes(row):
    """What the load's own settings say of the engine."""
    # 64 users of GLM-5 with long prompts have 12 requests at work, each with one token in 0.21 s, and 7,700 prompt tokens
    # are computed a second: 1,600 to 2,048 a step. Its rows with prompts of 4,096 tokens and more say the same.
    # The most that is at work at once, 222,000 tokens by Little's law, is what 0.8 of the memory leaves; so is what comes
    # again of MiniMax-M2.5's prompts, up to 2.7 M tokens and not 3.0 M.
    if row["model"].endswith("GLM-5-FP8"):
        return ["max_num_batched_tokens: 2048", "gpu_memory_utilization: 0.8", "tokeniser: {per_token: 5 us, batch: 32, batch_wait: 2 ms}"]
    # Its steps of 4 users take twice the time of their kernels, those of 64 users no longer than these: the host issues
    # them, as with graphs for the pieces between attention, which the model's own guide to vLLM advises.
    if row["model"].endswith("MiniMax-M2.5"):
        return ["execution: {graphs: false, issue: 17 us}", "gpu_memory_utilization: 0.8", "tokeniser: {per_token: 26 us, batch: 32, batch_wait: 2 ms}"]
    # InferenceMAX sends TensorRT-LLM's tokens twenty together for 1024 + 1024 tokens on fewer than eight GPUs: the first
    # of these rows is 19 tokens later than that of 1024 + 8192 tokens beside it.
    lengths = (int(row["prompt_tokens"]), int(row["output_tokens"]))
    if row["backend"] == "trtllm" and "70B" in row["model"] and lengths == (1024, 1024) and row["tensor_parallel"] < 8:
        return ["stream_interval: 20"]
    # AIConfigurator's generator (benchmark rules of 0.12) writes these sizes for the runs of its own client, whose lengths
    # are powers of two: batches of as many as there are users, in steps with room for one prompt and 1,500 tokens more.
    users = int(row["concurrency"])
    if row["gemm_dtype"] != "published" and row["backend"] in ("trtllm", "vllm") and "70B" not in row["model"] and lengths[0] & (lengths[0] - 1) == 0:
        return [f"max_num_seqs: {users}", f"max_num_batched_tokens: {users + lengths[0] + 1500}"]
    return []


def prompts(row):
    """How many different prompts the load's client has, where they come again and the engine keeps them."""
    if row.get("asked_before"):
        loads = (f"{{prompts: {prompts}, prompt_tokens: {tokens}}}" for prompts, tokens in row["asked_before"])
        return f"\n  asked_before: [{', '.join(loads)}]"
    # A client of round thousands with vLLM, which keeps prefixes by default: on one H200 its prompts of 2,000 tokens
    # would take 1.9 PFLOP/s if all were computed, 95 % of the peak. GenAI-Perf's data set has 100 entries by default.
    if row["backend"] == "vllm" and row["gemm_dtype"] != "published" and int(row["prompt_tokens"]) % 1000 == 0:
        return "\n  distinct_prompts: 100"
    return ""


def ramp(row):
    """How long the client takes to send its first requests."""
    # Tasks of one process, a few milliseconds each (prior 1 to 10): a batch of prompts is read before the next one comes.
    return f'\n  ramp: {3 * row["concurrency"]} ms' if row["gemm_dtype"] == "published" else ""


def scenario(row, own, options):
    weights = "fp8" if row["gemm_dtype"] else "bf16"
    kv = "bf16" if row["backend"] == "sglang" else weights
    if row["gemm_dtype"] == "published":
        weights, kv = "fp8_block", "bf16"
    users = row["concurrency"]
    model = row["model"].split("/")[-1]
    shares = drawn(row)
    if options.spread is not None:
        shares = (1 - options.spread / 100, 1 + options.spread / 100)
    file = options.engines and options.engines.resolve() / (row["backend"] + ".yaml")
    engine = [f"file: {file}" if file else f'name: {row["backend"]}']
    engine += [f'version: "{row["backend_version"] or UNNAMED[row["backend"]]}"']
    engine += changes(row) + ([own] if own else [])
    return f"""machine: {row["gpu"].replace("_", "-")}
model: {MODELS[model]}
dtype: {{weights: {weights}, kv: {kv}}}
{DIVISIONS[row.get("division", "tp")].format(row["tensor_parallel"])}
workload:
  concurrency: {users}
  requests: {row["requests"]}{prompts(row)}{ramp(row)}
  prompt_tokens: {length(int(row["prompt_tokens"]), shares)}
  output_tokens: {length(int(row["output_tokens"]), shares)}
engine: {{{", ".join(engine)}}}
"""


def simulated(row, own, options):
    """TTFT and TPOT of one row in ms, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "row.yaml"
        path.write_text(scenario(row, own, options))
        done = subprocess.run([FULCRUM, "--json", "sim", path], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    day = json.loads(done.stdout)
    which = row["statistic"]
    return [day["ttft_s"][which] * 1e3, day["tpot_s"][which] * 1e3], ""


def gpu_serving(path):
    for row in csv.DictReader(open(path)):
        users = int(row["concurrency"])
        row |= {"tensor_parallel": int(float(row["tensor_parallel"])), "concurrency": users}
        yield row | {"requests": ROUNDS * users, "statistic": "mean"}


def h200_serving(path):
    """Rows of 8 H200 in vLLM. Medians are given, and how many prompts there were.

    A file's name says how the GPUs divide the model: `tp`, all matrices; `tep`, all but whole experts; `dep`, experts, with
    attention apart on each GPU. No version is named: 0.16 is the first that has both models, and what InferenceX ran.
    """
    for row in csv.DictReader(open(path)):
        yield {
            "gpu": "h200_sxm", "backend": "vllm", "backend_version": "0.16", "model": row["model"], "gemm_dtype": "published",
            "tensor_parallel": 8, "prompt_tokens": row["isl"], "output_tokens": row["osl"],
            "concurrency": int(row["concurrency"]), "requests": int(row["prompts"]), "statistic": "p50",
            "division": re.search("_(tp|tep|dep)8_", row["file"])[1],
            "ttft_ms": float(row["median_ttft_s"]) * 1e3, "tpot_ms": float(row["median_tpot_s"]) * 1e3,
        }  # fmt: skip


def with_earlier_runs(rows):
    """The rows of a sweep, each with the prompts of the runs before it that are of use.

    A sweep's runs follow each other on one server, by length and then by users. Their client's random prompts begin
    with the same seed, so a run's first prompts are those of the run before it, and begin like those of the shorter
    length before. Runs that the table lacks are taken to have been made where they lie between others of a length.
    """
    servers = collections.defaultdict(lambda: collections.defaultdict(dict))
    rows = list(rows)
    for row in rows:
        servers[row["model"], row["division"]][int(row["prompt_tokens"])][row["concurrency"]] = row
    for lengths in servers.values():
        known = sorted({users for runs in lengths.values() for users in runs})
        before = []
        for length, runs in sorted(lengths.items()):
            made = [users for users in known if users <= max(*runs, FEWEST_LARGEST)]
            last = []
            for users in made:
                if users in runs:
                    runs[users]["asked_before"] = before + last
                last = [(ROUNDS * users, length)]
            before = last
    return rows


def groups_of(row):
    size = "one GPU" if row["tensor_parallel"] == 1 else "several"
    model = row["model"].split("/")[-1].removesuffix("-FP8").removesuffix("-Instruct")
    of_model = (f'{model} {row["backend"]} {row["gpu"].split("_")[0]} {row.get("division", "")}', "any number")
    return [(row["backend"], size), (row["gpu"], size), of_model, ("all", size), ("all", "any number")]


def table(title, groups):
    print(f"{title:36} {'rows':>5}  {'TPOT mean':>9} {'median':>7} {'bias':>7}  {'TTFT mean':>9} {'median':>7} {'bias':>7}")
    for (name, size), rows in sorted(groups.items()):
        text = f"{name + ', ' + size:36} {len(rows):5}"
        for which in (1, 0):
            of = [row[which] for row in rows]
            size_of = [abs(error) for error in of]
            text += f"  {statistics.mean(size_of):9.1%} {statistics.median(size_of):7.1%} {statistics.mean(of):+7.1%}"
        print(text)


def machine(row):
    return f'{row["gpu"].split("_")[0]} × {row["tensor_parallel"]}'


def engine(row):
    return row["backend"], row["backend_version"]


def left_out(candidates):
    """Errors by machine, each with the candidate that is best for its engine on the other machines."""
    groups = collections.defaultdict(list)
    first = candidates[0]
    for index, row in enumerate(row for row, _ in first):
        like = [
            other
            for other, (of, _) in enumerate(first)
            if engine(of) == engine(row) and machine(of) != machine(row)
        ]
        cost = lambda answers: sum(abs(error) for other in like for error in answers[other][1])
        for group in [(machine(row), "left out"), (row["backend"], "left out"), ("all", "left out")]:
            groups[group].append(min(candidates, key=cost)[index][1])
    return groups


def run(rows, engine, options, pool):
    """Rows with the errors of TTFT and TPOT, and what was simulated."""
    answers = list(pool.map(lambda row: simulated(row, engine, options), rows))
    answered = []
    for row, (times, why) in zip(rows, answers):
        if times is None:
            raise SystemExit(f'{row["model"]} × {row["tensor_parallel"]}, {row["concurrency"]} users: {why}')
        ours = {"our_ttft_ms": round(times[0], 3), "our_tpot_ms": round(times[1], 4)}
        errors = [time / float(row[key]) - 1 for time, key in zip(times, ("ttft_ms", "tpot_ms"))]
        answered.append((row | ours, errors))
    return answered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", help="keys of the scenario's engine")
    parser.add_argument("--engines", type=pathlib.Path, help="a folder with an engine's file for each engine")
    parser.add_argument("--spread", type=float, help="per cent; 0 for lengths that are all the same")
    parser.add_argument("--h200", type=pathlib.Path, help="a table with the columns of InferenceX's 8 H200, in place of ours")
    parser.add_argument("--rows", type=pathlib.Path, help="where to write every row beside what was simulated")
    parser.add_argument("--only", default="", help="rows of this engine alone")
    parser.add_argument("--every", type=int, default=1, help="one row in so many")
    options = parser.parse_args()
    rows = list(with_earlier_runs(h200_serving(options.h200)) if options.h200 else gpu_serving(ROOT / "sim/data/gpu_serving.csv"))
    rows = [row for row in rows if options.only in ("", row["backend"])][:: options.every]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        candidates = [run(rows, engine, options, pool) for engine in options.engine or [""]]
    for engine, answered in zip(options.engine or [""], candidates):
        groups = collections.defaultdict(list)
        for row, errors in answered:
            for group in groups_of(row):
                groups[group].append(errors)
        table(engine, groups)
        print()
    if options.rows:
        with open(options.rows, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=candidates[0][0][0].keys())
            writer.writeheader()
            writer.writerows(row for row, _ in candidates[0])
    table("each machine left out", left_out(candidates))


main()
