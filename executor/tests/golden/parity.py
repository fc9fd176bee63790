"""Compares our logits with those of Hugging Face transformers at the shape of a real model, with random weights, both in f32.

usage: parity.py FOLDER [PRESET]      (needs torch and transformers; FOLDER is where the model is made, 2.5 GB for the usual
                                       llama-3.2-1b, and both need its f32 weights in memory, one after the other)
"""

import json
import os
import pathlib
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here comes from the network

ROOT = pathlib.Path(__file__).resolve().parents[3]


def main():
    folder, preset = pathlib.Path(sys.argv[1]).resolve(), (sys.argv[2:] or ["llama-3.2-1b"])[0]
    folder.mkdir(parents=True, exist_ok=True)
    command = ["cargo", "run", "--release", "-p", "executor", "--example", "logits", "--", str(folder), preset]
    subprocess.run(command, cwd=ROOT, check=True)

    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", attn_implementation="eager", dtype=torch.float32).eval()
    worst = 0.0
    for row in json.loads((folder / "ours.json").read_text()):
        ours = torch.tensor(row["logits"])
        with torch.no_grad():
            theirs = model(torch.tensor([row["tokens"]]), use_cache=False).logits[0, -1]
        difference, largest = (ours - theirs).abs().max().item(), theirs.abs().max().item()
        cosine = torch.nn.functional.cosine_similarity(ours, theirs, dim=0).item()
        same = ours.argmax().item() == theirs.argmax().item()
        print(f"{preset}, {len(row['tokens'])} tokens: largest difference {difference:.2e}, largest logit {largest:.2f}, cosine {cosine:.8f}, "
              f"same best token: {same}")
        worst = max(worst, difference / largest)
    print(f"largest difference: {worst:.2e} of the largest logit")
    assert worst < 1e-4


if __name__ == "__main__":
    main()
