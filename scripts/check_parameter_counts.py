#!/usr/bin/env python3
"""Compares Fulcrum's parameter counts with those of transformers, for each family both know.

Each model is made on the meta device, so that it takes no memory, from a configuration of small
sizes that all differ, or of the class's own sizes (--real), or from a config.json. Needs torch and
transformers. --write makes the table that Fulcrum's own test reads.

    scripts/check_parameter_counts.py --fulcrum target/release/fulcrum [--real] [config.json ...]
    scripts/check_parameter_counts.py --write scenarios/tests/parameter_counts.jsonl
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

FAMILIES = """afmoe apertus arcee aria_text axk1 bailing_hybrid bamba cohere cohere2 cohere2_moe cwm
deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dots1 ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe falcon
falcon_h1 flex_olmo flint gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4
glm4_moe glm4_moe_lite glm5_next_text glm_moe_dsa gpt_neox gpt_oss gptj granite granite_swa granitemoe
granitemoe_swa granitemoehybrid granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4
hyperclovax internlm3 iquestcoder jais2 jamba kimi_linear kolibri1 laguna lara_mini lfm2 lfm2_moe lfm3 llama
llama4_text longcat_flash mellum mimo_v2_flash minicpm3 minimax_m2 minimax_m3_vl_text ministral
ministral3 mistral mistral4 mistral_large4_text mixtral nanochat nemotron nemotron_h olmo olmo2 olmo3
olmo_hybrid olmoe opt phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe
qwen3_next qwen4_exp_text sarvam_mla sarvam_moe seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma youtu""".split()

# Sizes for keys that a class has. Hardly two are equal, so that a confusion of two shows.
SIZES = {
    "vocab_size": 640, "hidden_size": 96, "intermediate_size": 176, "num_hidden_layers": 6,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24, "moe_intermediate_size": 40,
    "num_experts": 8, "n_routed_experts": 8, "num_local_experts": 8, "moe_num_experts": 8,
    "num_experts_per_tok": 2, "num_experts_per_token": 2, "moe_k": 2, "moe_topk": 2,
    "n_shared_experts": 2, "num_shared_experts": 2, "moe_num_shared_experts": 2,
    "shared_expert_intermediate_size": 56, "shared_intermediate_size": 56, "first_k_dense_replace": 1,
    "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12,
    "v_head_dim": 28, "n_group": 2, "topk_group": 1, "mamba_n_heads": 8, "mamba_d_head": 24,
    "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_expand": 2, "mamba_num_heads": 8,
    "mamba_head_dim": 24, "ssm_state_size": 16, "n_groups": 2, "linear_num_key_heads": 4,
    "linear_num_value_heads": 8, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}

# What some classes need beside these.
LAYERS = ["sliding_attention"] * 5 + ["full_attention"]
MORE = {
    "falcon_h1": {"mamba_d_ssm": 192},
    "gemma4_text": {"num_hidden_layers": 12, "layer_types": LAYERS * 2, "global_head_dim": 36,
                    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 16,
                    "vocab_size_per_layer_input": 640},
    "gemma4_unified_text": {"layer_types": LAYERS, "global_head_dim": 36},
    "helium": {"head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention"] * 2},
    "lfm3": {"layer_types": ["conv", "sliding_attention", "full_attention"] * 2},
    "longcat_flash": {"num_layers": 3, "ffn_hidden_size": 176, "expert_ffn_hidden_size": 40, "zero_expert_num": 0},
    "mimo_v2_flash": {"num_attention_heads": 8, "v_head_dim": 20},
    "minimax_m3_vl_text": {"rotary_dim": 12},
    "qwen4_exp_text": {"hc_count": 3, "hc_lowrank": 20, "indexer_n_heads": 5, "indexer_kv_heads": 1,
                       "indexer_head_dim": 32, "indexer_budget": 64, "indexer_compress_ratio": 8,
                       "ple_layer_ids": [1, 3], "ple_embed_dim": 64, "ngram_vocab_size_base": 100},
}

# Families with small matrices that are not counted; they are compared at their real sizes.
REAL = {"bailing_hybrid", "deepseek_v4", "gemma3n_text", "glm5_next_text", "hy_v4", "lfm3", "mistral4",
        "mistral_large4_text"}

# Of all parameters. Small vectors that only some checkpoints have may differ.
TOLERANCE = 0.005


def configuration(name, real):
    """The class's configuration, with small sizes or its own."""
    from transformers import CONFIG_MAPPING

    make = CONFIG_MAPPING[name]
    if real or name in REAL:
        return make()
    known = make().to_dict()
    return make(**{key: size for key, size in SIZES.items() if key in known} | MORE.get(name, {}))


def counted_by_transformers(config):
    """The number of parameters, tied ones once, with the biases that balance experts."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    with torch.device("meta"):
        if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            model = AutoModelForCausalLM.from_config(config)
            model.tie_weights()
            head = 0
        else:  # The language model of a multimodal one, without its head.
            model = AutoModel.from_config(config)
            head = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    biases = [b for name, b in model.named_buffers() if name.endswith("correction_bias")]
    return head + sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in biases)


def counted_by_fulcrum(program, config):
    """The number of parameters that `fulcrum model show` prints, or its error."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(config.to_json_string())
        command = [program, "--json", "model", "show", str(path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return None, run.stderr.strip()
    return json.loads(run.stdout)["parameters"], ""


def counted(named):
    """Each name with its configuration and transformers' count."""
    for name, make in named:
        try:
            config = make()
            yield name, config, counted_by_transformers(config)
        except Exception as error:  # A class without usable defaults is not an error of Fulcrum's.
            print(f"skip  {name}: {str(error).splitlines()[0][:80]}", file=sys.stderr)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--fulcrum", default="fulcrum", help="the program")
    arguments.add_argument("--real", action="store_true", help="the sizes of the classes' defaults")
    arguments.add_argument("--write", metavar="FILE", help="write a table instead of comparing")
    arguments.add_argument("configs", nargs="*", help="files to compare instead of the families")
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore")
    from transformers import CONFIG_MAPPING, AutoConfig

    named = [(path, lambda path=path: AutoConfig.from_pretrained(path)) for path in chosen.configs]
    families = [(name, lambda name=name: configuration(name, chosen.real)) for name in FAMILIES if name in CONFIG_MAPPING]
    cases = counted(named or families)
    if chosen.write:
        with open(chosen.write, "w", encoding="utf-8") as table:
            for _, config, theirs in cases:
                keys = json.loads(config.to_json_string())
                keys.pop("transformers_version", None)
                table.write(json.dumps({"parameters": theirs, "config": keys}) + "\n")
        return 0
    wrong = 0
    for name, config, theirs in cases:
        ours, error = counted_by_fulcrum(chosen.fulcrum, config)
        if ours is None:
            print(f"WRONG {name}: {error[:100]}")
            wrong += 1
            continue
        difference = (ours - theirs) / theirs
        far = abs(difference) > TOLERANCE
        wrong += far
        print(f"{'WRONG' if far else 'ok   '} {name}: {ours} here, {theirs} there ({difference:+.4%})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
