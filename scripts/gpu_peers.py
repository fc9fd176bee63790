#!/usr/bin/env python3
"""Prompts and tokens of Llama's shapes in bf16 by PyTorch on a GPU: what scripts/gpu_check.sh measures of ours, by eager kernels and by
a captured graph of one step. Needs torch and transformers, and no weights: they are drawn at random."""
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

COMMON = dict(num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192)
SHAPES = {
    "llama-3.2-1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, head_dim=64, tie_word_embeddings=True),
    "llama-3.1-8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, head_dim=128, tie_word_embeddings=False),
}


def milliseconds(call, times):
    """The median of so many calls, after one that does not count."""
    taken = []
    for _ in range(times + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken[1:])


def captured(step):
    """The step as a graph, after two on a stream of their own, as PyTorch wants it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


@torch.no_grad()
def measure(name, shape):
    config = LlamaConfig(**COMMON, **shape)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    for weights in model.parameters():
        weights.normal_(0, 0.02)
    prompts = torch.randint(0, config.vocab_size, (4, 1024), device="cuda")
    for rows in (prompts, prompts[:1, :64]):
        time_ = milliseconds(lambda: model(rows, logits_to_keep=1, use_cache=True), 5)
        print(f"{name}: prompts of {rows.shape[0]} x {rows.shape[1]}, eager: {time_:.2f} ms", flush=True)
    for batch in (1, 4):
        cache = StaticCache(config=config, max_cache_len=1152)
        model(prompts[:batch, :64], past_key_values=cache, cache_position=torch.arange(64, device="cuda"))
        token, at = prompts[:batch, :1].clone(), torch.tensor([96], device="cuda")

        def step():
            places = at[None].expand(batch, 1)
            model(token, past_key_values=cache, cache_position=at, position_ids=places, use_cache=True)

        eager, graph = milliseconds(step, 7), captured(step)
        print(f"{name}: a token of {batch}, eager: {eager:.2f} ms, a graph: {milliseconds(graph.replay, 21):.2f} ms", flush=True)


for name, shape in SHAPES.items():
    measure(name, shape)
