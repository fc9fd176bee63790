#!/usr/bin/env python3
"""What scripts/gpu_check.sh makes of the files that `fulcrum` wrote. Each call prints what it found, one line each, and in its last
line what to say of all; it fails where something cannot be right."""
import csv
import json
import re
import statistics
import sys

SCALE = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
         "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
# Data sheet: memory bandwidth in B/s, dense bf16 rate in FLOP/s.
SHEET = {"h200": (4.8e12, 989e12), "h100": (3.35e12, 989e12), "a100": (2.04e12, 312e12), "b200": (8e12, 2250e12),
         "l40s": (864e9, 362e12), "rtx-4090": (1008e9, 165e12), "rtx-pro-6000": (1792e9, 504e12)}


def number(text):
    value, unit = text["value"].split() if isinstance(text, dict) else text.split()
    prefix = unit.removesuffix("/s").removesuffix("B").removesuffix("s")
    return float(value) * SCALE.get(prefix, 1.0)


failed = []


def check(what, value, low, high, unit, scale):
    good = low <= value <= high
    print(f"{'ok    ' if good else 'FAILED'} {what}: {value / scale:.4g} {unit} ({low / scale:.4g} to {high / scale:.4g})")
    if not good:
        failed.append(what)


def products(part, dtype):
    """The measured products in a format: m, n, k and the time in seconds of each. A host's file holds them as CSV."""
    rows = csv.DictReader(part.get("gemm", {}).get(dtype, {"points": ""})["points"].splitlines())
    return [(int(row["m"]), int(row["n"]), int(row["k"]), float(row["time_us"]) * 1e-6) for row in rows]


def rate(product):
    m, n, k, seconds = product
    return 2 * m * n * k / seconds


def kernels(file):
    found = json.load(open(file))
    shares = [kernel["share_of_tolerance"] for kernel in found["kernels"]]
    print(f"{len(shares)} kernels and shapes on {found['gpu']}, at most {max(shares):.2f} of what rounding allows")


def host(file, *csv_and_name):
    gpu = json.load(open(file))["gpu"]
    if gpu == "absent":
        sys.exit("FAILED: gpu: absent; the warnings say why")
    part, link = gpu["part"], gpu["link"]
    sheet = next((SHEET[name] for name in SHEET if name in part["gpu"]), (20e12, 1e16))
    known = sheet[0] < 20e12
    read, copy = number(part["bandwidth"]), number(gpu["copy"]["points"][-1]["value"])
    check("reads", read, sheet[0] * (0.7 if known else 0.002), sheet[0], "TB/s", 1e12)
    check("copies, both ways counted", copy, 0.6 * read, 1.1 * read, "TB/s", 1e12)
    host, node, replay = (number(gpu["launches"][key]) for key in ("host", "node", "replay"))
    check("an empty kernel in a graph", node, 0.3e-6, 5e-6, "us", 1e-6)
    check("an empty kernel from the host", host, node, 30e-6, "us", 1e-6)
    check("a replay", replay, node, 100e-6, "us", 1e-6)
    check("a round trip", number(part["sync"]), host / 2, 100e-6, "us", 1e-6)
    check("to the GPU", number(link["to_device"]), 2e9, 450e9, "GB/s", 1e9)
    check("from the GPU", number(link["to_host"]), 2e9, 450e9, "GB/s", 1e9)
    check("α", number(link["latency"]), 0.2e-6, 50e-6, "us", 1e-6)
    check("duplex", link["duplex"]["value"], 0.4, 1.0, "of each way alone", 1)
    major, minor = map(int, part["compute_capability"].split("."))
    wanted = {"f16", "int8"} | ({"bf16"} if major >= 8 else set()) | ({"fp8"} if (major, minor) >= (8, 9) else set())
    for dtype in sorted(wanted):
        points = products(part, dtype)
        check(f"shapes in {dtype}", len(points), 20, 588, "of 588", 1)
        if dtype in ("bf16", "f16") and points:
            check(f"fastest product in {dtype}", max(map(rate, points)), sheet[1] * (0.5 if known else 1e-4), sheet[1] * 1.02, "TFLOP/s", 1e12)
    if len(csv_and_name) == 2:
        names = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8"}
        rows = [row for row in csv.DictReader(open(csv_and_name[0])) if row["gpu"] == csv_and_name[1] and row["dtype"] in names]
        ours = {(d, m, n, k): time for d in part.get("gemm", {}) for m, n, k, time in products(part, d)}
        for dtype in sorted({names[row["dtype"]] for row in rows}):
            pairs = [(ours.get((dtype, int(row["m"]), int(row["n"]), int(row["k"]))), float(row["latency_us"]) * 1e-6)
                     for row in rows if names[row["dtype"]] == dtype]
            ratios = sorted(a / b for a, b in pairs if a) or [0]
            print(f"       {dtype} times over the CSV's: 10 % below {ratios[len(ratios) // 10]:.2f}, 10 % above {ratios[-1 - len(ratios) // 10]:.2f}")
            # The shipped files' products in fp8 include rounding the activations to fp8, which ours do not.
            low = 0.7 if dtype == "bf16" else 0.3
            check(f"{dtype} times over the CSV's, median", statistics.median(ratios), low, 1.4, f"over {len(ratios)} shapes", 1)
    if not failed:
        print(f"reads {read / 1e12:.2f} TB/s, to the GPU {number(link['to_device']) / 1e9:.0f} GB/s, plausible throughout")


def amx(file):
    """The best rate of the host's products in bf16."""
    cpu = json.load(open(file))
    text = json.dumps(cpu.get("gemm", cpu))
    print("AMX is there; the host's products are in host.yaml" if "bf16" in text else sys.exit("FAILED: no products in bf16"))


def limit(file, weights, percent):
    """The same host with less memory on its GPU: so much of what the model's file has."""
    import os
    capacity = os.path.getsize(weights) * int(percent) // 100
    text = open(file).read()
    start = re.search(r"^gpu:", text, re.M).start()
    before, gpu = text[:start], text[start:]
    limited, count = re.subn(r"(capacity:\s*\{?\s*(?:value:)?\s*)[0-9.]+ [A-Za-z]+", rf"\g<1>{capacity} B", gpu, count=1)
    sys.stdout.write(before + limited) if count else sys.exit("no capacity in the GPU's part")


def run(rates, validation, host, plan):
    """What was measured beside the targets, and beside the prediction."""
    configuration = json.load(open(validation))["configurations"][0]
    gpu = json.load(open(host))["gpu"]
    label, predicted = configuration["label"], configuration["predicted"]
    ttft, tpot = (statistics.median(run[key] for run in configuration["runs"]) for key in ("ttft_s", "tpot_s"))
    weights = {memory["memory"]: memory["weights_bytes"] for memory in configuration["memory"]}
    everything = sum(weights.values())
    read = number(gpu["part"]["bandwidth"])
    best = max(map(rate, products(gpu["part"], "bf16")), default=0)
    resident = max(weights.values()) / everything
    words = [f"TTFT {ttft * 1e3:.4g} ms ({predicted['ttft_s'] / ttft - 1:+.1%})",
             f"TPOT {tpot * 1e3:.4g} ms ({predicted['tpot_s'] / tpot - 1:+.1%})"]
    if resident > 0.99 and "experts:" not in open(plan).read():
        tokens = label["batch"] * label["prompt_tokens"]
        words.append(f"decode at {everything / tpot / read:.0%} of measured reads (target 80 %)")
        if best:
            words.append(f"prefill at {everything * tokens / ttft / best:.0%} of the best product (target 75 %)")
    else:
        words.append(f"{resident:.0%} of the weights in one memory")  # of experts, a step reads only those that are chosen
    print("; ".join(words))


{"kernels": kernels, "host": host, "amx": amx, "limit": limit, "run": run}[sys.argv[1]](*sys.argv[2:])
sys.exit(f"FAILED: {', '.join(failed)}" if failed else 0)
