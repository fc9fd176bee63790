"""Makes the GGUF goldens with ggml's own package (`pip install gguf numpy safetensors`):

gguf_blocks.json     random blocks of every format that we read, and the values that the package makes of them
llama_gqa.gguf       the model of that folder in f32, as llama.cpp wants it: rows of q and k in the order of its rotation
qwen3.gguf           likewise; its rotation is the checkpoint's

usage: make_gguf.py [--llama-cpp]      (in this folder; with --llama-cpp also runs both in llama.cpp, `pip install llama-cpp-python`,
                                        and compares its logits with golden.safetensors)
"""

import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).parent
TYPES = gguf.GGMLQuantizationType
BLOCKS = [TYPES.F32, TYPES.F16, TYPES.Q4_0, TYPES.Q8_0, TYPES.Q4_K, TYPES.Q6_K, TYPES.BF16]
LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
ENDS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def blocks():
    random = np.random.default_rng(3)
    cases = []
    for kind in BLOCKS:
        values, size = gguf.GGML_QUANT_SIZES[kind]
        count = max(1, 512 // values)
        data = random.integers(0, 256, count * size, dtype=np.uint8).reshape(count, size)
        # Scales of a sane size: f16 of about 2^-5 wherever a block has one.
        for at in {TYPES.Q4_0: [0], TYPES.Q8_0: [0], TYPES.Q4_K: [0, 2], TYPES.Q6_K: [208]}.get(kind, []):
            data[:, at + 1] = 0x28 | (data[:, at + 1] & 0x83)
        if kind in (TYPES.F32, TYPES.F16, TYPES.BF16):
            plain = random.standard_normal(count).astype(np.float32)
            data = gguf.quants.quantize(plain.reshape(1, -1), kind).view(np.uint8).reshape(1, -1)
        out = gguf.quants.dequantize(data if kind not in (TYPES.F32, TYPES.F16) else data.view({TYPES.F32: np.float32, TYPES.F16: np.float16}[kind]), kind)
        cases.append({"format": int(kind), "bytes": data.reshape(-1).tolist(), "values": [float(v) for v in np.asarray(out, dtype=np.float32).reshape(-1)]})
    (HERE / "gguf_blocks.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


def turned(rows, heads):
    """Rows of q or k as llama.cpp's rotation wants them: the two of a pair side by side."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def model(folder, architecture):
    config = json.loads((HERE / folder / "config.json").read_text())
    tensors = load_file(HERE / folder / "model.safetensors")
    tokenizer = json.loads((HERE / folder / "tokenizer.json").read_text())
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer = gguf.GGUFWriter(HERE / f"{folder}.gguf", architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(config["vocab_size"])
    vocabulary = [text for text, _ in sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])]
    vocabulary += [f"<unused{i}>" for i in range(len(vocabulary), config["vocab_size"])]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary)
    writer.add_token_scores([float(-i) for i in range(len(vocabulary))])
    writer.add_token_types([3 if text.startswith("<") and text.endswith(">") and len(text) > 3 else 1 for text in vocabulary])
    for name, values in tensors.items():
        if name in ENDS:
            name = ENDS[name]
        else:
            _, _, layer, rest = name.split(".", 3)
            rest, kind = rest.rsplit(".", 1)
            if architecture == "llama" and LAYER[rest] in ("attn_q", "attn_k"):
                heads = config["num_attention_heads" if LAYER[rest] == "attn_q" else "num_key_value_heads"]
                values = turned(values, heads)
            name = f"blk.{layer}.{LAYER[rest]}.{kind}"
        writer.add_tensor(name, np.ascontiguousarray(values.astype(np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(folder):
    import llama_cpp

    golden = load_file(HERE / folder / "golden.safetensors")
    facts = json.loads((HERE / folder / "golden.json").read_text())
    tokens = facts["sequences"]["long"]["tokens"][0]
    llama = llama_cpp.Llama(str(HERE / f"{folder}.gguf"), n_ctx=128, logits_all=True, verbose=False)
    llama.eval(tokens)
    wanted = golden["long.logits"][0]
    positions = facts["sequences"]["long"]["positions"]
    got = np.array(llama.scores[: len(tokens)])[positions]
    cosine = (got * wanted).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(wanted, axis=-1)
    print(f"{folder}: llama.cpp's logits, least cosine {cosine.min():.6f}")
    assert cosine.min() > 0.999


if __name__ == "__main__":
    blocks()
    for name, architecture in (("llama_gqa", "llama"), ("qwen3", "qwen3")):
        model(name, architecture)
        if "--llama-cpp" in sys.argv:
            compare(name)
