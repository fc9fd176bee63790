"""llama.cpp on a model with random weights: prints its rates as JSON.

usage: with_llama_cpp.py FOLDER DTYPE PROMPT OUTPUT

FOLDER/model is a Llama in Hugging Face's form. Its weights are written once as FOLDER/DTYPE.gguf: all matrices in bf16, Q8_0 (int8),
Q4_0 (int4) or MXFP4, or as llama.cpp's own quantiser mixes formats for its type of the same name (q4_k_m, q6_k, q8_0, iq4_xs).
Rows of q and k keep their order, so that what it computes is not the model's, in the same time.
OUTPUT 0 only writes the file.
"""

import ctypes
import json
import os
import pathlib
import sys
import time

import gguf
import numpy as np

TYPES = {"bf16": gguf.GGMLQuantizationType.BF16, "int8": gguf.GGMLQuantizationType.Q8_0, "int4": gguf.GGMLQuantizationType.Q4_0,
         "mxfp4": gguf.GGMLQuantizationType.MXFP4}
# Numbers of llama.cpp's file types.
MIXTURES = {"q8_0": 7, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30}
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


def tensors(folder):
    """Name and f32 values of every tensor of the safetensors files, which hold bf16."""
    for file in sorted(folder.glob("*.safetensors")):
        with open(file, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(length))
            data = np.memmap(file, dtype=np.uint8, mode="r", offset=8 + length)
        for name, entry in header.items():
            if name != "__metadata__":
                assert entry["dtype"] == "BF16", entry
                begin, end = entry["data_offsets"]
                bits = data[begin:end].view(np.uint16).astype(np.uint32) << 16
                yield name, bits.view(np.float32).reshape(entry["shape"])


def gguf_name(name):
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[name]


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary: itself where it is printed, otherwise one from 256 on."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return "".join(chr(byte if byte in printed else next(others)) for byte in range(256))


def write(folder, out, dtype):
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(str(out) + ".tmp", "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_vocab_size(config["vocab_size"])
    vocabulary = list(byte_letters()) + ["<|end|>", "\u0120t"]
    vocabulary += [f"<{i}>" for i in range(len(vocabulary), config["vocab_size"])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([1] * 256 + [3] + [1] * (len(vocabulary) - 257))
    writer.add_token_merges(["\u0120 t"])
    writer.add_eos_token_id(256)
    for name, values in tensors(folder):
        kind = TYPES[dtype] if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        # A few rows at a time: the quantiser needs many times the memory of its values.
        parts = [gguf.quants.quantize(part, kind) for part in np.array_split(values, max(1, values.size >> 22))]
        writer.add_tensor(gguf_name(name), np.concatenate(parts), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(str(out) + ".tmp", out)


def quantise(whole, out, dtype):
    """Writes `whole` in one of llama.cpp's mixtures, by its own quantiser."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = MIXTURES[dtype], len(os.sched_getaffinity(0))
    failed = llama_cpp.llama_model_quantize(str(whole).encode(), (str(out) + ".tmp").encode(), ctypes.byref(params))
    assert failed == 0, f"llama.cpp did not write {dtype}"
    os.rename(str(out) + ".tmp", out)


def file_of(folder, dtype):
    """The file in this format, written at the first call."""
    file = folder / f"{dtype}.gguf"
    if not file.exists() and dtype in MIXTURES:
        quantise(file_of(folder, "bf16"), file, dtype)
    elif not file.exists():
        write(folder / "model", file, dtype)
    return file


def main():
    folder, dtype, prompt, output = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    file = file_of(folder, dtype)
    if output == 0:
        return
    import llama_cpp

    threads = len(os.sched_getaffinity(0))
    llama = llama_cpp.Llama(str(file), n_ctx=prompt + output, n_batch=prompt, n_ubatch=prompt, n_threads=threads,
                            n_threads_batch=threads, verbose=False)
    tokens = np.random.default_rng(0).integers(3, llama.n_vocab(), prompt).tolist()
    llama.eval(tokens)
    times = []
    for _ in range(2):
        llama.reset()
        begin = time.perf_counter()
        llama.eval(tokens)
        first = time.perf_counter()
        for _ in range(output - 1):
            logits = llama_cpp.llama_get_logits_ith(llama.ctx, -1)
            row = np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (llama.n_vocab(),))
            llama.eval([int(row.argmax())])
        times.append((first - begin, (time.perf_counter() - first) / max(1, output - 1)))
    prefill, decode = (min(column) for column in zip(*times))
    print(json.dumps({"prefill": prompt / prefill, "decode": 1 / decode}))


if __name__ == "__main__":
    main()
