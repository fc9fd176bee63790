"""Makes the GGUF goldens with ggml's own package (`pip install gguf numpy`).

gguf_blocks.json has random blocks of every format that we read, and the values that the package makes
of them. The others are models of the folders in f32. Of each file two parts are kept: NAME.gguf.head, its
bytes in front of the tensors' data, and NAME.gguf.json, which says from which tensor of the folder each
tensor's data come and how they are rearranged. The tests put the files together from these.

llama_gqa    as llama.cpp wants it: rows of q and k in the order of its rotation
qwen3        its rotation is the checkpoint's, as in those below
gemma        norms with the 1 added
gemma2       likewise; a file does not say by what scores are divided, so q is scaled by the difference
gemma3       likewise, scores being divided by the head's width
phi3         q, k, v in one tensor, gate and up in one, as in the checkpoint
phi          as phi2
gpt_neox     q, k, v in one tensor, one after the other
falcon_7b    likewise

gguf_families.py has the later families. `scripts/llama_cpp_logits.py` runs all of them in llama.cpp.

usage: make_gguf.py [NAME ...]         (only these models, or all)
"""

import json
import pathlib
import sys
import tempfile

import gguf
import gguf_families as families
import numpy as np
from golden_weights import digest, draw

HERE = pathlib.Path(__file__).parent
TYPES = gguf.GGMLQuantizationType
BLOCKS = [TYPES.F32, TYPES.F16, TYPES.Q4_0, TYPES.Q8_0, TYPES.Q4_K, TYPES.Q6_K, TYPES.BF16, TYPES.Q4_1, TYPES.Q5_0, TYPES.Q5_1,
          TYPES.Q2_K, TYPES.Q3_K, TYPES.Q5_K, TYPES.IQ4_NL, TYPES.IQ4_XS, TYPES.MXFP4, TYPES.NVFP4]
# Where a block has an f16 scale.
SCALES = {TYPES.Q4_0: [0], TYPES.Q8_0: [0], TYPES.Q4_K: [0, 2], TYPES.Q6_K: [208], TYPES.Q4_1: [0, 2], TYPES.Q5_0: [0], TYPES.Q5_1: [0, 2],
          TYPES.Q2_K: [80, 82], TYPES.Q3_K: [108], TYPES.Q5_K: [0, 2], TYPES.IQ4_NL: [0], TYPES.IQ4_XS: [0]}
LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
}
GPT = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.dense": "attn_output",
    "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "attention.query_key_value": "attn_qkv", "self_attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
    "self_attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
}
BEHIND = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
ENDS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight", "lm_head.bias": "output.bias"}
for kind in ("weight", "bias"):
    ENDS |= {f"{norm}.{kind}": f"output_norm.{kind}" for norm in ("model.final_layernorm", "gpt_neox.final_layer_norm", "transformer.ln_f")}
ENDS |= {"gpt_neox.embed_in.weight": "token_embd.weight", "transformer.word_embeddings.weight": "token_embd.weight", "embed_out.weight": "output.weight"}


def blocks():
    random = np.random.default_rng(3)
    cases = []
    for kind in BLOCKS:
        values, size = gguf.GGML_QUANT_SIZES[kind]
        count = max(1, 512 // values)
        data = random.integers(0, 256, count * size, dtype=np.uint8).reshape(count, size)
        # Scales of a sane size: f16 of about 2^-5 wherever a block has one.
        for at in SCALES.get(kind, []):
            data[:, at + 1] = 0x28 | (data[:, at + 1] & 0x83)
        if kind == TYPES.MXFP4:
            data[:, 0] = 120 + data[:, 0] % 16
        if kind == TYPES.NVFP4:
            data[:, :4] &= 0x7f
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


def whole(rows, groups, heads):
    """q, k and v that alternate in groups of so many heads of q, as one after the other."""
    parts = rows.reshape(groups, heads + 2, -1, *rows.shape[1:])
    return np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in (parts[:, :heads], parts[:, heads], parts[:, heads + 1])])


def change(values, steps):
    """A tensor of a folder as the GGUF file has it: `steps` are applied in order."""
    for step, *numbers in steps:
        if step == "pairs":
            values = turned(values, *numbers)
        elif step == "concatenate":
            values = whole(values, *numbers)
        elif step == "scale":
            values = values * np.float32(numbers[0])
        elif step == "add":
            values = values + np.float32(numbers[0])
        elif step == "rate":
            values = -np.exp(values.astype(np.float64))
        elif step == "fill":
            values = np.concatenate([values, np.full(numbers[1], numbers[0], dtype=np.float32)])
        elif step == "transpose":
            values = values.swapaxes(-1, -2)
        elif step == "split":
            values = values.reshape(numbers[0], -1, *values.shape[1:])
        elif step == "join":
            values = values.reshape(-1, *values.shape[2:])
        elif step == "rows":
            run, first, count = numbers
            values = values.reshape(-1, run, *values.shape[1:])[:, first : first + count].reshape(-1, *values.shape[1:])
        elif step == "tiled":
            groups, each, first = numbers
            rest = values[first:].reshape(groups, each, -1, *values.shape[1:]).swapaxes(0, 1)
            values = np.concatenate([values[:first], rest.reshape(-1, *values.shape[1:])])
    return np.ascontiguousarray(values.astype(np.float32))


def add_tokenizer(writer, config, tokenizer):
    vocabulary = [text for text, _ in sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])]
    vocabulary += [f"<unused{i}>" for i in range(len(vocabulary), config["vocab_size"])]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary)
    writer.add_token_scores([float(-i) for i in range(len(vocabulary))])
    writer.add_token_types([3 if text.startswith("<") and text.endswith(">") and len(text) > 3 else 1 for text in vocabulary])


def model(folder, architecture, path):
    """Writes the file of a folder to `path`. Returns the pieces of its tensors, and the folder's tensors."""
    config = json.loads((HERE / folder / "config.json").read_text())
    tensors, pieces_of = draw(HERE / folder), {}
    tokenizer = json.loads((HERE / folder / "tokenizer.json").read_text())
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config.get("intermediate_size") or config.get("ffn_hidden_size") or 4 * config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    heads = config["num_attention_heads"]
    kv_heads = 1 if config.get("multi_query") else config.get("num_key_value_heads", heads)
    writer.add_head_count_kv(kv_heads)
    epsilon = [config[key] for key in ("layer_norm_eps", "layer_norm_epsilon") if key in config]
    if epsilon:
        writer.add_layer_norm_eps(epsilon[0])
        if "use_parallel_residual" in config:
            writer.add_parallel_residual(config["use_parallel_residual"])
    else:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        writer.add_sliding_window_pattern(config["layer_types"].index("full_attention") + 1)
        rope = rope["full_attention"]
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    for cap, add in (("attn_logit_softcapping", writer.add_attn_logit_softcapping), ("final_logit_softcapping", writer.add_final_logit_softcapping)):
        if config.get(cap):
            add(config[cap])
    writer.add_vocab_size(config["vocab_size"])
    add_tokenizer(writer, config, tokenizer)
    for source, values in sorted(tensors.items()):
        steps, name = [], ENDS.get(source)
        if name is None:
            _, _, layer, rest = source.split(".", 3)
            rest, kind = rest.rsplit(".", 1)
            if architecture == "llama" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
                heads = config["num_attention_heads" if rest == "self_attn.q_proj" else "num_key_value_heads"]
                steps.append(["pairs", heads])
            if rest == "self_attn.q_proj" and config.get("query_pre_attn_scalar"):
                steps.append(["scale", float(np.float32((head_dim / config["query_pre_attn_scalar"]) ** 0.5))])
            if rest.endswith("query_key_value"):
                steps.append(["concatenate", kv_heads, heads // kv_heads])
            names = LAYER | BEHIND if architecture in ("gemma2", "gemma3") else GPT if epsilon else LAYER
            name = f"blk.{layer}.{names[rest]}.{kind}"
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            steps.append(["add", 1.0])
        pieces_of[name] = [(source, steps)]
        writer.add_tensor(name, change(values, steps))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return pieces_of, tensors


def family(folder, path):
    """As `model`, for a folder of the later families."""
    architecture = families.ARCHITECTURES[folder]
    config = families.config_of(HERE / folder)
    tokenizer = json.loads((HERE / folder / "tokenizer.json").read_text())
    tensors = {"": np.zeros(0, dtype=np.float32)} | draw(HERE / folder)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in families.keys(architecture, config).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        add[type(value)](f"{architecture}.{key}", value)
    add_tokenizer(writer, config, tokenizer)
    kept = families.pieces(architecture, config, {name: tensor for name, tensor in tensors.items() if name})
    for name, pieces in kept.items():
        writer.add_tensor(name, np.concatenate([change(tensors[source], steps) for source, steps in pieces]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept, tensors


def keep(folder, path, pieces_of, sources):
    """Keeps the head of the file at `path`, and where the data behind it come from."""
    data, reader = path.read_bytes(), gguf.GGUFReader(path)
    start, tensors = reader.data_offset, []
    for tensor in reader.tensors:
        at = int(tensor.data_offset) - start
        for source, steps in pieces_of[tensor.name]:
            tensors.append([at, source, steps])
            at += change(sources[source], steps).nbytes
    words = np.frombuffer(data[start:], dtype=np.uint32)
    (HERE / f"{folder}.gguf.head").write_bytes(data[:start])
    listed = ",\n    ".join(json.dumps(tensor) for tensor in tensors)
    instead = f'\n  "instead": {json.dumps(families.INSTEAD[folder])},' if folder in families.INSTEAD else ""
    (HERE / f"{folder}.gguf.json").write_text(
        f'{{\n  "digest": "{digest([words])}",\n  "data_bytes": {len(data) - start},{instead}\n  "tensors": [\n    {listed}\n  ]\n}}\n'
    )


def write_all(names, folder):
    """Writes the files with these names, or all of them, to `folder`; tells what `keep` needs of each."""
    first = {"llama_gqa": "llama", "phi": "phi2", "gpt_neox": "gptneox", "falcon_7b": "falcon"}
    first |= {name: name for name in ("qwen3", "gemma", "gemma2", "gemma3", "phi3")}
    for name in names or [*first, *families.ARCHITECTURES]:
        path = pathlib.Path(folder) / f"{name}.gguf"
        yield name, path, *(model(name, first[name], path) if name in first else family(name, path))


if __name__ == "__main__":
    blocks()
    with tempfile.TemporaryDirectory() as temporary:
        for file in write_all(sys.argv[1:], temporary):
            keep(*file)
