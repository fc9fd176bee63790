r"""Makes the golden models: tiny random transformers and what Hugging Face computes with them.

How to run, in a fresh environment (Python 3.11; about 5 GB for torch, one minute of compute):

    python3 -m venv /tmp/golden-venv
    /tmp/golden-venv/bin/pip install torch==2.15.0 transformers==5.23.0 \
        safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6
    /tmp/golden-venv/bin/python executor/tests/golden/make_golden.py          # rewrite the folders
    /tmp/golden-venv/bin/python executor/tests/golden/make_golden.py --check  # compare with them

The versions used are recorded in every golden.json. Weights come from numpy's PCG64 and are the
same bytes on every machine, so weights.json keeps their seed instead of the weights. Logits may
differ in the last bits between processors, so `--check` compares those within 1e-4 and everything
else exactly. README.md describes the files.

For each model the seed is the first, counting from 0, whose greedy tokens are all decided by a
margin of at least MIN_MARGIN, so that summing in another order cannot change a token. Before
anything is written, the script shows that the files can fail a wrong executor: every bias, every
norm weight and every listed configuration key must move the logits (`require_sensitivity`).
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here comes from the network
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import tokenizers
import torch
import transformers

sys.dont_write_bytecode = True  # no __pycache__ beside the golden files
from golden_models import goldens
from golden_weights import draw, manifest
from golden_tokenizers import PROMPT, TOKENIZER_TEXTS, VOCAB

HERE = Path(__file__).resolve().parent
OUTPUT_TOKENS = 24
MIN_MARGIN = 1e-2  # between the best and the second logit, at every greedy step
MIN_DISTINCT = 8  # different tokens among the 24: a sequence stuck on one token tests little
LOGIT_TOLERANCE = 1e-4  # absolute, between two float32 orders of summation
AROUND_ZERO = ("bias", "mixer.A_log", "mixer.D")  # endings of the names of 1-D tensors that are drawn as biases
VISIBLE_COSINE = 0.999  # a mistake must fall below it in some row; the executor is held to 0.9999


# ---------------------------------------------------------------- models


def build(config, state=None):
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    ).eval()
    if state:
        model.load_state_dict(state)
    return model


def draw_weights(golden, model, seed):
    """Fills the parameters in name order: matrices N(0, std), biases and the like N(0, bias), norms norm + N(0, 0.3).

    Returns (values, mean, deviation) of each in that order."""
    rng, draws = np.random.default_rng(seed), []
    with torch.no_grad():
        # The corrections of routers and the factors of layers are buffers.
        buffers = [pair for pair in model.named_buffers() if pair[0].endswith(("correction_bias", "layer_scalar"))]
        for name, tensor in sorted([*model.named_parameters(), *buffers]):
            unit = torch.from_numpy(rng.standard_normal(tuple(tensor.shape), dtype=np.float32))
            own = next((std for end, std in golden.stds.items() if name.endswith(end)), None)
            mean, deviation = None, own or golden.std
            if tensor.ndim == 1:
                mean, deviation = (None, golden.bias) if name.endswith(AROUND_ZERO) else (golden.norm, own or 0.3)
            tensor.copy_(deviation * unit if mean is None else mean + deviation * unit)
            draws.append((tensor.numpy(), mean, deviation))
    return draws


# ---------------------------------------------------------------- expected values


def sequences(tokenizer, seed):
    """The inputs: name → (token ids [batch, tokens], positions whose logits are kept)."""
    rng = np.random.default_rng([seed, 1])
    prompt = tokenizer.encode(PROMPT).ids
    return {
        "batch": (rng.integers(0, VOCAB, (2, 13)).tolist(), [0, 6, 12]),
        "long": (rng.integers(0, VOCAB, (1, 70)).tolist(), [0, 7, 8, 15, 16, 31, 32, 63, 64, 69]),
        "prompt": ([prompt], [0, len(prompt) // 2, len(prompt) - 1]),
    }


@torch.no_grad()
def logits_of(model, tokens):
    return model(torch.tensor(tokens), use_cache=False).logits


def greedy(model, tokens):
    """Greedy tokens [batch, 24] without a cache, the last step's logits [batch, vocab], the margin."""
    rows, chosen, margin = [list(row) for row in tokens], [[] for _ in tokens], float("inf")
    for _ in range(OUTPUT_TOKENS):
        last = logits_of(model, rows)[:, -1]
        best = last.topk(2)
        margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
        if margin < MIN_MARGIN:
            break  # another seed is wanted
        for row, output, token in zip(rows, chosen, best.indices[:, 0].tolist()):
            row.append(token)
            output.append(token)
    return chosen, last, margin


def expect(model, tokenizer, seed):
    """Runs all sequences: golden.json's `sequences`, golden.safetensors' tensors, smallest margin."""
    described, tensors, margin = {}, {}, float("inf")
    for name, (tokens, positions) in sequences(tokenizer, seed).items():
        chosen, final, least = greedy(model, tokens)
        margin = min(margin, least)
        if margin < MIN_MARGIN:
            return described, tensors, margin
        described[name] = {"tokens": tokens, "positions": positions, "greedy": chosen}
        tensors[f"{name}.logits"] = logits_of(model, tokens)[:, positions].contiguous()
        tensors[f"{name}.final_logits"] = final.contiguous()
    described["prompt"]["text"] = PROMPT
    described["prompt"]["continuation"] = tokenizer.decode(described["prompt"]["greedy"][0])
    return described, tensors, margin


def find_seed(golden, model, tokenizer):
    for seed in range(1000):
        draw_weights(golden, model, seed)
        described, tensors, margin = expect(model, tokenizer, seed)
        rows = [row for entry in described.values() for row in entry["greedy"]]
        if margin >= MIN_MARGIN and min(len(set(row)) for row in rows) >= MIN_DISTINCT:
            return seed, described, tensors, margin
    sys.exit(f"{golden.name}: no seed below 1000 gives margins of {MIN_MARGIN}")


def tokenizer_cases(tokenizer):
    cases = []
    for text in TOKENIZER_TEXTS:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        whole = tokenizer.encode(text).ids
        decoded = tokenizer.decode(whole, skip_special_tokens=True)
        cases.append({"text": text, "ids": whole, "plain_ids": plain, "decoded": decoded})
    return cases


# ---------------------------------------------------------------- proofs


def least_cosine(model, described, tensors):
    """The worst cosine, over all kept rows of logits, between `model` and the golden tensors."""
    worst = 1.0
    for name, entry in described.items():
        found = logits_of(model, entry["tokens"])[:, entry["positions"]]
        cosine = torch.nn.functional.cosine_similarity(found, tensors[f"{name}.logits"], dim=-1)
        worst = min(worst, cosine.min().item())
    return worst


def require_sensitivity(golden, model, described, tensors):
    """Every mistake must be visible; returns the least visible one and its cosine."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen = {}
    for key, wrongs in golden.mistakes.items():
        for wrong in wrongs if isinstance(wrongs, list) else [wrongs]:
            config = type(golden.config).from_dict(golden.config.to_dict() | {key: wrong})
            cosine = least_cosine(build(config, state), described, tensors)
            seen[key] = max(cosine, seen.get(key, -1.0))
    for name, tensor in state.items():
        if tensor.ndim == 1:
            neutral = torch.full_like(tensor, 0.0 if name.endswith(AROUND_ZERO) else golden.norm)
            cosine = least_cosine(build(golden.config, state | {name: neutral}), described, tensors)
            if name.endswith(golden.invisible):
                assert cosine > 0.999999, f"{golden.name}: {name} was said to change nothing"
            else:
                seen[name] = cosine
        elif name.endswith("embed_positions.weight"):
            shifted = state | {name: tensor.roll(2, 0)}
            seen["position offset"] = least_cosine(build(golden.config, shifted), described, tensors)
    name = max(seen, key=seen.get)
    assert seen[name] < VISIBLE_COSINE, f"{golden.name}: nobody would notice a wrong {name}"
    return {"mistake": name, "cosine": round(seen[name], 6)}


@torch.no_grad()
def require_reload(folder, described, tensors):
    """Loads `folder` from disk and decodes with a KV cache: same tokens, logits within tolerance."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    for name, entry in described.items():
        step = model(torch.tensor(entry["tokens"]), use_cache=True)
        torch.testing.assert_close(
            step.logits[:, entry["positions"]], tensors[f"{name}.logits"],
            rtol=0, atol=LOGIT_TOLERANCE,
        )
        chosen = [step.logits[:, -1].argmax(-1)]
        while len(chosen) < OUTPUT_TOKENS:
            step = model(chosen[-1][:, None], past_key_values=step.past_key_values, use_cache=True)
            chosen.append(step.logits[:, -1].argmax(-1))
        assert torch.stack(chosen, 1).tolist() == entry["greedy"], (folder, name)
        torch.testing.assert_close(
            step.logits[:, -1], tensors[f"{name}.final_logits"], rtol=0, atol=LOGIT_TOLERANCE
        )


# ---------------------------------------------------------------- files


def hub_spelling(config):
    """The same configuration as transformers 4 wrote it, which is what the model hub is full of."""
    if config["model_type"] == "gemma4_text":
        # It was never written by transformers 4; the hub has the sizes of its wider heads under other keys.
        wider = next(iter(config["per_layer_config"].values()))
        own = {"global_head_dim": wider["head_dim"], "num_global_key_value_heads": wider.get("num_key_value_heads")}
        return dict(sorted(({key: config[key] for key in config if key != "per_layer_config"} | own).items()))
    if config["model_type"] == "nemotron_h":
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        kept = {key: value for key, value in config.items() if not key.endswith("layers_block_type")}
        return dict(sorted((kept | {"hybrid_override_pattern": "".join(letters[it] for it in config["layers_block_type"])}).items()))
    old = {key: value for key, value in config.items() if key != "layer_types"}
    old["torch_dtype"] = old.pop("dtype")
    del old["transformers_version"]
    if "rope_parameters" in old:
        scaling = dict(old.pop("rope_parameters"))
        if "full_attention" in scaling:
            old["rope_local_base_freq"] = scaling["sliding_attention"]["rope_theta"]
            if old["model_type"] == "gemma3_text":
                old["sliding_window_pattern"] = config["layer_types"].index("full_attention") + 1
            else:
                old["layer_types"] = config["layer_types"]
            scaling = dict(scaling["full_attention"])
        old["rope_theta"] = scaling.pop("rope_theta")
        part = scaling.pop("partial_rotary_factor", None)
        old["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
        if old["model_type"] == "gpt_neox":
            old["rotary_pct"], old["rotary_emb_base"] = part, old.pop("rope_theta")
        elif old["model_type"] == "minimax_m2":
            old["rotary_dim"] = int(part * old["head_dim"])
        elif part is not None:
            old["partial_rotary_factor"] = part
    if "linear_attention" in config.get("layer_types", []):
        old["full_attention_interval"] = config["layer_types"].index("full_attention") + 1
    if old["model_type"] in ("llama", "mistral"):
        del old["head_dim"]  # absent from older files: hidden_size / num_attention_heads
    if old["model_type"] == "gemma":
        old["hidden_act"], old["hidden_activation"] = "gelu", None  # as its first checkpoints say
    if old["model_type"] == "qwen3_moe":
        old["num_experts"] = old.pop("num_local_experts")
    if "use_sliding_window" in old:
        old["sliding_window"] = 32  # shorter than our sequences, and switched off
    return dict(sorted(old.items()))


def write_json(path, value):
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # Lists of integers, and of what is drawn for a tensor, on one line each: the file should be readable.
    text = re.sub(r"\[\s*(-?\d[-\d,\s]*?)\s*\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
    text = re.sub(r'\[\s*("[^"\n]*",\s*\[[^\]\n]*\],[^\[\]]*?)\s*\]', lambda m: "[" + " ".join(m[1].split()) + "]", text)
    path.write_text(text + "\n", encoding="utf-8")


def write_weights(folder, seed, draws):
    """Replaces the weights that were saved in `folder` by the list of what was drawn."""
    files, saved = sorted(folder.glob("model*.safetensors")), {}
    for file in files:
        saved |= safetensors.numpy.load_file(file)
    write_json(folder / "weights.json", manifest(seed, draws, saved))
    drawn = draw(folder)
    assert all(np.array_equal(drawn[name], values) for name, values in saved.items())
    for file in files:
        file.unlink()


def write_golden(golden, folder):
    tokenizer, model = golden.tokenizer(), build(golden.config)
    seed, described, tensors, margin = find_seed(golden, model, tokenizer)
    weakest = require_sensitivity(golden, model, described, tensors)

    draws = draw_weights(golden, model, seed)
    model.save_pretrained(folder, max_shard_size=golden.shard)
    (folder / "generation_config.json").unlink()  # not used: greedy, and never stopped by an end token
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    require_reload(folder, described, tensors)

    write_json(folder / "config.v4.json", hub_spelling(config))
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "copy"
        shutil.copytree(folder, copy)
        (copy / "config.v4.json").replace(copy / "config.json")
        require_reload(copy, described, tensors)
    write_weights(folder, seed, draws)

    every = torch.cat([tensor.flatten() for tensor in tensors.values()])
    safetensors.torch.save_file(tensors, folder / "golden.safetensors")
    write_json(folder / "golden.json", {
        "made_with": {
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "safetensors": safetensors.__version__,
            "tokenizers": tokenizers.__version__,
            "numpy": np.__version__,
        },
        "seed": seed,
        "weight_std": golden.std,
        "least_greedy_margin": round(margin, 5),
        "logit_std": round(every.std().item(), 3),
        "least_visible_mistake": weakest,
        "sequences": described,
        "tokenizer": tokenizer_cases(tokenizer),
    })
    total = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{golden.name}: seed {seed}, margin {margin:.4f}, logit std {every.std():.2f}, "
          f"least visible mistake {weakest}, {total} bytes")


def require_same(made, kept):
    """Files equal byte for byte; logits and the figures derived from them within tolerance."""
    names = sorted(file.name for file in made.iterdir())
    assert names == sorted(file.name for file in kept.iterdir()), f"{kept}: other files"
    for name in names:
        if name == "golden.safetensors":
            new, old = (safetensors.torch.load_file(folder / name) for folder in (made, kept))
            torch.testing.assert_close(new, old, rtol=0, atol=LOGIT_TOLERANCE)
        elif name == "golden.json":
            new, old = (json.loads((folder / name).read_text()) for folder in (made, kept))
            for key in ("seed", "weight_std", "sequences", "tokenizer"):
                assert new[key] == old[key], f"{kept / name}: {key} differs"
        else:
            assert (made / name).read_bytes() == (kept / name).read_bytes(), f"{kept / name} differs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed files")
    parser.add_argument("names", nargs="*", help="only these models")
    arguments = parser.parse_args()
    check = arguments.check
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for golden in goldens():
        if arguments.names and golden.name not in arguments.names:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            made, kept = Path(temporary) / golden.name, HERE / golden.name
            made.mkdir()
            write_golden(golden, made)
            if check:
                require_same(made, kept)
            else:
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(made, kept)


if __name__ == "__main__":
    main()
