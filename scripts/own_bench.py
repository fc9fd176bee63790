#!/usr/bin/env python3
"""What is gained when a machine learns from one model that its owner measured: errors on the owner's other models.

    cargo build --release --bin fulcrum && scripts/advise.py --rows rows.csv USERS.csv HYBRID.csv
    scripts/own_bench.py rows.csv [FULCRUM]

Of each machine in rows.csv with five models or more that llama.cpp ran all on a GPU or all on the CPU, one model in turn
(at most six), and then three in turn, are what `fulcrum machine fit` learns from; the others (at most twelve) are
predicted by the parts alone and by the fitted machine. Of each model one prompt and one rate of decode count, those of the prompt nearest to
512 tokens; decode is behind the prompt. Nothing else is fitted. Each machine weighs the same in the medians that are
printed last.
"""
import collections
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

FULCRUM = sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).resolve().parent.parent / "target/release/fulcrum"


def bench_row(row):
    """A run as a row of `llama-bench -o json`."""
    prompt = int(float(row["prompt_tokens"] or 512))
    of_prompt = row["phase"] == "prompt"
    return {"model_filename": f'{row["preset"]}-{row["format"]}.gguf', "backends": "CPU" if row["places"] == "cpu" else "CUDA", "n_gpu_layers": 99,
            "n_prompt": prompt if of_prompt else 0, "n_gen": 0 if of_prompt else 128,
            "n_depth": 0 if of_prompt else prompt, "avg_ts": float(row["measured_tok_s"])}


def some(keys, most):
    """At most so many of them, spread evenly."""
    return [keys[at * len(keys) // most] for at in range(most)] if len(keys) > most else keys


def usual(rows):
    """Of each phase the row whose prompt is nearest to 512 tokens."""
    far = lambda row: abs(int(float(row["prompt_tokens"] or 512)) - 512)
    phases = {row["phase"] for row in rows}
    return [min((row for row in rows if row["phase"] == phase), key=far) for phase in sorted(phases)]


def fit(folder, rows, machine, out=None):
    """Rates on a machine before a fit to them; None where something does not run there."""
    bench = folder / "bench.json"
    bench.write_text(json.dumps([bench_row(row) for row in rows]))
    command = [FULCRUM, "--json", "machine", "fit", bench, "--machine", machine] + (["-o", out] if out else [])
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode else [rate["before"] for rate in json.loads(done.stdout)["rates"]]


def main():
    machines = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in csv.DictReader(open(sys.argv[1])):
        if row["engine"] == "llama.cpp" and row["places"] in ("gpu", "cpu", "unified"):
            machines[row["machine"]][row["preset"], row["format"]].append(row)
    ways = ["parts", "one", "three"]
    print(f'{"errors by":42} models  decode: ' + " ".join(f"{way:>7}" for way in ways) + "  prompts: "
          + " ".join(f"{way:>7}" for way in ways))
    medians = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for machine, models in sorted(machines.items()):
            if len({preset for preset, _ in models}) < 5:
                continue
            models = {key: usual(models[key]) for key in some(sorted(models), 12)}
            parts = {key: fit(folder, rows, machine) for key, rows in models.items()}
            names = sorted(key for key in models if parts[key])
            errors = collections.defaultdict(list)
            for way, together in [("one", 1), ("three", 3)]:
                for at in some(range(len(names)), 6):
                    learnt = [names[(at + step * len(names) // 3) % len(names)] for step in range(together)]
                    if fit(folder, [row for key in learnt for row in models[key]], machine, folder / "fitted.yaml") is None:
                        continue
                    others = [key for key in names if key[0] not in [preset for preset, _ in learnt]]
                    rows = [(row, ours) for key in others for row, ours in zip(models[key], parts[key])]
                    fitted = fit(folder, [row for row, _ in rows], folder / "fitted.yaml")
                    for (row, by_parts), by_fit in zip(rows, fitted):
                        error = lambda ours: abs(ours / float(row["measured_tok_s"]) - 1)
                        errors[row["phase"], way].append(error(by_fit))
                        errors[row["phase"], "parts"].append(error(by_parts))
            told = {key: statistics.median(all) for key, all in errors.items()}
            for key, median in told.items():
                medians[key].append(median)
            cells = {phase: " ".join(f'{told[phase, way]:7.1%}' if (phase, way) in told else f'{"–":>7}' for way in ways)
                     for phase in ("decode", "prompt")}
            print(f'{machine[:41]:42} {len(models):6}          {cells["decode"]}           {cells["prompt"]}', flush=True)
    for phase in ("decode", "prompt"):
        told = ", ".join(f"{statistics.median(medians[phase, way]):.1%} by {way}" for way in ways)
        print(f"{phase}: {told} (medians of {len(medians[phase, 'parts'])} machines)")


main()
