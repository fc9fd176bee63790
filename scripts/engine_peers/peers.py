"""llama.cpp and PyTorch beside us: one model with random weights, in turn, each from its own process.

usage: peers.py OURS PYTHON FOLDER [ROUNDS]

OURS is a release build of `fulcrum`; PYTHON has llama-cpp-python, gguf, torch and transformers; FOLDER is for the model, about 8 GB.
Prints medians of ROUNDS rounds (each engine once a round, in another order every time): prefill of 512 tokens and decode of 64.
"""

import json
import pathlib
import statistics
import subprocess
import sys

PROMPT, OUTPUT = 512, 64
FORMATS = ["bf16", "int8", "int4"]


def ours(fulcrum, folder, dtype):
    """Tokens/s of prefill and decode of a plan on the CPU alone, each the better of two runs, as the peers' are."""
    plan = folder / f"plan-{dtype}.yaml"
    if not plan.exists():
        host, scenario = folder / "host.yaml", folder / f"scenario-{dtype}.yaml"
        if not host.exists():
            subprocess.run([fulcrum, "bench", "--quick", "-o", host], check=True, stdout=subprocess.DEVNULL)
        scenario.write_text(
            f"machine: {host}\nmodel: {folder / 'model'}\ndtype: {{weights: {dtype}, kv: bf16}}\n"
            f"workload: {{batch: 1, prompt_tokens: {PROMPT}, output_tokens: {OUTPUT}}}\n"
        )
        subprocess.run([fulcrum, "plan", scenario, "-o", plan], check=True, stdout=subprocess.DEVNULL)
    run = [fulcrum, "--json", "run", plan, "--model-dir", folder / "model"]
    rates = [json.loads(subprocess.run(run, check=True, capture_output=True).stdout)["rates"] for _ in range(2)]
    return {"prefill": PROMPT / min(r["ttft_s"] for r in rates), "decode": 1 / min(r["tpot_s"] for r in rates)}


def peer(python, name, folder, dtype):
    script = pathlib.Path(__file__).with_name(f"with_{name}.py")
    said = subprocess.run([python, script, folder, dtype, str(PROMPT), str(OUTPUT)], check=True, capture_output=True)
    return json.loads(said.stdout.splitlines()[-1])


def main():
    fulcrum, python, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model").exists():
        subprocess.run([fulcrum, "model", "init", "fulcrum-1b", "-o", folder / "model"], check=True, stdout=subprocess.DEVNULL)
    engines = [("fulcrum", dtype) for dtype in FORMATS] + [("llama_cpp", dtype) for dtype in FORMATS] + [("pytorch", "bf16")]
    found = {engine: [] for engine in engines}
    for turn in range(rounds):
        order = engines[turn % len(engines):] + engines[: turn % len(engines)]
        for engine in order:
            name, dtype = engine
            rates = ours(fulcrum, folder, dtype) if name == "fulcrum" else peer(python, name, folder, dtype)
            found[engine].append((rates["prefill"], rates["decode"]))
            print(f"  {name} {dtype}: {rates['prefill']:.1f} and {rates['decode']:.2f} tokens/s", file=sys.stderr)
    print(f"| engine | weights | prefill of {PROMPT}, tokens/s (spread) | decode of {OUTPUT}, tokens/s (spread) | ours ÷ it |")
    print("|---|---|--:|--:|--:|")
    medians = {engine: [statistics.median(column) for column in zip(*rows)] for engine, rows in found.items()}
    for (name, dtype), rows in found.items():
        cells = [f"{m:.1f} ({min(c):.1f} to {max(c):.1f})" for m, c in zip(medians[name, dtype], zip(*rows))]
        mine = medians["fulcrum", dtype]
        ratios = [a / b for a, b in zip(mine, medians[name, dtype])]
        print(f"| {name} | {dtype} | {cells[0]} | {cells[1]} | {'' if name == 'fulcrum' else ' / '.join(f'{r:.2f}' for r in ratios)} |")


if __name__ == "__main__":
    main()
