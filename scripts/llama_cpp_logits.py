#!/usr/bin/env python3
"""Logits of llama.cpp and of the executor from the same GGUF files.

usage: llama_cpp_logits.py [NAME|FILE.gguf ...]

Without names, the files of all golden models are written (`executor/tests/golden/make_gguf.py`) and run in
both. For each file the least cosine of the logits behind a few prompts is printed, and of how many prompts
the following tokens are the same. llama.cpp computes in f32, with a cache in f32; its tables of GELU and
SiLU are in f16. Needs `pip install llama-cpp-python gguf numpy`, and cargo. Files that llama.cpp refuses are
listed with its reason.

Exit status: 1 where a cosine is below 0.9999.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "executor/tests/golden"))
sys.dont_write_bytecode = True
import make_gguf

LEAST = 0.9999


def ours(path, folder):
    out = pathlib.Path(folder) / "ours.json"
    subprocess.run(["cargo", "run", "--quiet", "-p", "fulcrum-executor", "--example", "logits", str(path), str(out)], cwd=ROOT, check=True)
    return json.loads(out.read_text())


def compare(path, folder):
    """The least cosine, and for each prompt whether the tokens are the same."""
    f32 = llama_cpp.GGML_TYPE_F32
    model = llama_cpp.Llama(str(path), n_ctx=256, logits_all=True, verbose=False, type_k=f32, type_v=f32, flash_attn=False)
    cosines, same = [], []
    for row in ours(path, folder):
        model.reset()
        model.eval(row["tokens"])
        logits, tokens = np.array(model.scores[model.n_tokens - 1], dtype=np.float64), []
        own = np.array(row["logits"])
        cosines.append(float(logits @ own / np.linalg.norm(logits) / np.linalg.norm(own)))
        for _ in row["following"]:
            tokens.append(int(np.argmax(model.scores[model.n_tokens - 1])))
            model.eval(tokens[-1:])
        same.append(tokens == row["following"])
    return min(cosines), same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="golden models, or GGUF files")
    names, least = parser.parse_args().names, 1.0
    with tempfile.TemporaryDirectory() as folder:
        golden = [name for name in names if not name.endswith(".gguf")]
        if golden or not names:
            list(make_gguf.write_all(golden, folder))
        for path in [*sorted(pathlib.Path(folder).glob("*.gguf")), *(pathlib.Path(name) for name in names if name.endswith(".gguf"))]:
            try:
                cosine, same = compare(path, folder)
            except (ValueError, subprocess.CalledProcessError) as error:
                print(f"{path.stem}: not compared: {error}", flush=True)
                continue
            least = min(least, cosine)
            print(f"{path.stem}: least cosine {cosine:.7f}, same tokens behind {sum(same)} of {len(same)} prompts", flush=True)
    sys.exit(least < LEAST)


if __name__ == "__main__":
    main()
