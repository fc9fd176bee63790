#!/usr/bin/env python3
"""Predicts and measures decode with and without a model's own MTP module, which proposes what the model chooses.

    cargo build --release --bin fulcrum && scripts/mtp_speed.py FOLDER [MACHINE [FULCRUM]]

FOLDER is new: a model of GLM-4.5's shape with random weights, two plans and what `fulcrum validate` says go there.
MACHINE is `this` or a host's file. In the model no layer adds anything to the residual, and the module projects the
embedding alone. So both choose the next token from the last one, and every proposed token is accepted; the work is that
of any other weights.
"""
import json
import pathlib
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = pathlib.Path(sys.argv[1])
MACHINE = str(pathlib.Path(sys.argv[2]).resolve()) if sys.argv[2:] and sys.argv[2] != "this" else "this"
FULCRUM = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else ROOT / "target/release/fulcrum").resolve()
CONFIG = {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "attention_bias": True, "hidden_size": 1024,
    "first_k_dense_replace": 1, "head_dim": 64, "hidden_act": "silu", "intermediate_size": 2816, "n_group": 1,
    "max_position_embeddings": 1024, "moe_intermediate_size": 512, "n_routed_experts": 16, "n_shared_experts": 1,
    "norm_topk_prob": True, "num_attention_heads": 16, "num_experts_per_tok": 2, "num_hidden_layers": 12,
    "num_key_value_heads": 4, "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "routed_scaling_factor": 1.5, "tie_word_embeddings": False, "topk_group": 1,
    "use_qk_norm": False, "vocab_size": 8192,
}
SCENARIO = f"""machine: {json.dumps(MACHINE)}
model: model
dtype: {{weights: bf16, kv: bf16}}
workload: {{batch: 1, prompt_tokens: 64, output_tokens: 129}}
"""
DRAFT = "speculative: {draft: mtp, tokens: [1, 2, 3], acceptance: 1}\n"
ONE = struct.pack("<H", 0x3F80)  # bf16


def make_agree(path):
    """Makes layers silent and the module's projection (identity, zero)."""
    with open(path, "r+b") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            data = bytearray(end - begin)
            if "eh_proj" in name:
                rows, columns = tensor["shape"]
                for row in range(rows):
                    at = 2 * row * (columns + 1)
                    data[at : at + 2] = ONE
            elif not name.endswith(("o_proj.weight", "down_proj.weight")):
                continue
            file.seek(8 + size + begin)
            file.write(data)


def fulcrum(*words):
    subprocess.run([FULCRUM, *words], cwd=FOLDER, check=True)


FOLDER.mkdir()
(FOLDER / "config.json").write_text(json.dumps(CONFIG))
fulcrum("model", "init", "config.json", "-o", "model")
make_agree(FOLDER / "model/model.safetensors")
for name, text in (("plain", SCENARIO), ("drafted", SCENARIO + DRAFT)):
    (FOLDER / f"{name}.yaml").write_text(text)
    fulcrum("plan", f"{name}.yaml", "-o", f"{name}.plan.yaml")
fulcrum("validate", "plain.plan.yaml", "drafted.plan.yaml", "--model-dir", "model", "--repeats", "5")
