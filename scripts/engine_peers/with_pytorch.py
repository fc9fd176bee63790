"""PyTorch on a model with random weights, by transformers: prints its rates as JSON.

usage: with_pytorch.py FOLDER DTYPE PROMPT OUTPUT

FOLDER/model is the model in Hugging Face's form; DTYPE is bf16, weights and activations. The KV cache is a static one, so that nothing
is allocated between tokens.
"""

import json
import os
import pathlib
import sys
import time

import torch
from transformers import AutoModelForCausalLM, StaticCache


def main():
    folder, dtype, prompt, output = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    assert dtype == "bf16", dtype
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    tokens = torch.randint(3, model.config.vocab_size, (1, prompt))
    times = []
    with torch.inference_mode():
        for _ in range(3):
            cache = StaticCache(config=model.config, max_cache_len=prompt + output)
            begin = time.perf_counter()
            logits = model(tokens, past_key_values=cache, cache_position=torch.arange(prompt), logits_to_keep=1).logits
            token = logits[:, -1:].argmax(-1)
            first = time.perf_counter()
            for position in range(prompt, prompt + output - 1):
                logits = model(token, past_key_values=cache, cache_position=torch.tensor([position])).logits
                token = logits[:, -1:].argmax(-1)
            times.append((first - begin, (time.perf_counter() - first) / (output - 1)))
    prefill, decode = (min(column) for column in zip(*times[1:]))
    print(json.dumps({"prefill": prompt / prefill, "decode": 1 / decode}))


if __name__ == "__main__":
    main()
