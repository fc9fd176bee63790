#!/usr/bin/env bash
# Measures a machine with a GPU with a `fulcrum` that was built elsewhere, and checks what it says of the GPU.
# Arguments: the program, a folder for results, and optionally a CSV of GEMM times (gpu,dtype,m,n,k,latency_us) with the
# GPU's name there, to compare with: scripts/gpu_check.sh ./fulcrum out gpu_gemm_calibration.csv h200_sxm
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 FULCRUM OUT [CSV GPU]" >&2; exit 2; }
fulcrum=$1 out=$2
mkdir -p "$out"
nvidia-smi | tee "$out/nvidia-smi.txt"
lscpu > "$out/lscpu.txt"
"$fulcrum" --json bench -o "$out/host.yaml" > "$out/host.json" 2> >(tee "$out/warnings.txt" >&2)
python3 - "$out/host.json" "${@:3}" <<'PYTHON'
import csv, json, statistics, sys

SCALE = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
         "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
# Data sheet: memory bandwidth in B/s, dense bf16 rate in FLOP/s.
SHEET = {"h200": (4.8e12, 989e12), "h100": (3.35e12, 989e12), "a100": (2.04e12, 312e12), "b200": (8e12, 2250e12),
         "l40s": (864e9, 362e12), "rtx-4090": (1008e9, 165e12), "rtx-pro-6000": (1792e9, 504e12)}


def number(text):
    value, unit = text["value"].split() if isinstance(text, dict) else text.split()
    prefix = unit.removesuffix("/s").removesuffix("B").removesuffix("s")
    return float(value) * SCALE.get(prefix, 1.0)


gpu = json.load(open(sys.argv[1]))["gpu"]
if gpu == "absent":
    sys.exit("FAILED: gpu: absent; the warnings say why")
part, link, failed = gpu["part"], gpu["link"], []


def check(what, value, low, high, unit, scale):
    good = low <= value <= high
    print(f"{'ok    ' if good else 'FAILED'} {what}: {value / scale:.4g} {unit} ({low / scale:.4g} to {high / scale:.4g})")
    if not good:
        failed.append(what)


def rate(point):
    return 2 * point["m"] * point["n"] * point["k"] / number(point["time"])


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
    points = part.get("gemm", {}).get(dtype, {"points": []})["points"]
    check(f"shapes in {dtype}", len(points), 500, 588, "of 588", 1)
    if dtype in ("bf16", "f16") and points:
        check(f"fastest product in {dtype}", max(map(rate, points)), sheet[1] * (0.5 if known else 1e-4), sheet[1] * 1.02, "TFLOP/s", 1e12)
if len(sys.argv) > 3:
    names = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8"}
    rows = [row for row in csv.DictReader(open(sys.argv[2])) if row["gpu"] == sys.argv[3] and row["dtype"] in names]
    ours = {(d, p["m"], p["n"], p["k"]): number(p["time"]) for d, r in part.get("gemm", {}).items() for p in r["points"]}
    for dtype in sorted({names[row["dtype"]] for row in rows}):
        pairs = [(ours.get((dtype, int(row["m"]), int(row["n"]), int(row["k"]))), float(row["latency_us"]) * 1e-6)
                 for row in rows if names[row["dtype"]] == dtype]
        ratios = sorted(a / b for a, b in pairs if a) or [0]
        print(f"       {dtype} times over the CSV's: 10 % below {ratios[len(ratios) // 10]:.2f}, 10 % above {ratios[-1 - len(ratios) // 10]:.2f}")
        check(f"{dtype} times over the CSV's, median", statistics.median(ratios), 0.7, 1.4, f"over {len(ratios)} shapes", 1)
sys.exit(f"FAILED: {', '.join(failed)}" if failed else 0)
PYTHON
echo "the GPU is measured and plausible: $out/host.yaml"
