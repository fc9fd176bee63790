"""The later families as GGUF files: the keys of a file, and how its tensors are made from a folder's.

llama.cpp's own converter defines the layouts; `scripts/llama_cpp_logits.py` shows that llama.cpp computes
the same logits from these files as the executor does.
"""

import json
import math
import re
import statistics

import gguf

ARCHITECTURES = {
    "gpt_oss": "gpt-oss", "qwen3_next": "qwen3next", "qwen3_next_square": "qwen3next", "qwen3_5": "qwen35", "qwen3_5_heads": "qwen35", "qwen3_5_moe": "qwen35moe", "glm4_moe": "glm4moe", "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2", "gemma4": "gemma4", "gemma4_moe": "gemma4", "gemma4_shared": "gemma4", "llama4": "llama4",
    "gemma3n": "gemma3n", "minimax_m2": "minimax-m2", "nemotron_h": "nemotron_h", "nemotron_h_moe": "nemotron_h_moe",
}
# Values of a folder's configuration that files cannot say, or llama.cpp does not read: the file is of a
# folder with these instead.
INSTEAD = {
    "gpt_oss": {"swiglu_limit": 7.0},
    "deepseek_v3": {"rope_parameters": {"mscale": 2.0}},
    "llama4": {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1},
}

ENDS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm", "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj", "model.per_layer_projection_norm": "per_layer_proj_norm",
}
GATED = [(f"{part}_proj", f"ffn_{part}") for part in ("gate", "up", "down")]
LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp", "feed_forward.router": "ffn_gate_inp", "router.proj": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{f"{place}.{theirs}": ours for place in ("mlp", "feed_forward") for theirs, ours in GATED},
    **{f"{place}.{theirs}": f"{ours}_shexp" for place in ("mlp.shared_expert", "mlp.shared_experts", "mixer.shared_experts", "feed_forward.shared_expert") for theirs, ours in GATED},
    # Latent attention
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_b_proj": "attn_q_b", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    # Gated delta nets
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
    # Layers of one sublayer
    "norm": "attn_norm", "mixer.q_proj": "attn_q", "mixer.k_proj": "attn_k", "mixer.v_proj": "attn_v", "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down", "mixer.in_proj": "ssm_in", "mixer.out_proj": "ssm_out",
    "mixer.conv1d": "ssm_conv1d", "mixer.norm": "ssm_norm", "mixer.gate": "ffn_gate_inp",
    # Gemma
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm", "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm", "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef", "altup.modality_router": "altup_router", "altup.router_norm": "altup_router_norm",
}
POST_NORM = ("gpt-oss", "glm4moe", "qwen3next", "qwen35", "qwen35moe", "gemma3n", "gemma4")
PLUS_ONE = ("qwen3next", "qwen35", "qwen35moe")
# Tensors of a layer whose names do not end in `weight` or `bias`, or are whole names in the file.
WHOLE = {
    "self_attn.sinks": "attn_sinks.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias", "linear_attn.dt_bias": "ssm_dt.bias", "mixer.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a", "mixer.A_log": "ssm_a", "mixer.D": "ssm_d", "layer_scalar": "layer_output_scale.weight",
    "altup.correct_output_scale": "altup_correct_scale.weight", "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
}
EXPERT = re.compile(r"(?:mlp|mixer|block_sparse_moe)\.experts\.\d+\.(\w+)\.weight")
EXPERT_PARTS = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


def config_of(folder):
    """The configuration of a folder, with the values of INSTEAD."""
    config = json.loads((folder / "config.json").read_text())
    for key, value in INSTEAD.get(folder.name, {}).items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    return config


def places(architecture, config, rest, shape):
    """Where a tensor of a layer goes: the file's tensor and the steps, for each of its places."""
    if found := EXPERT.fullmatch(rest):
        return [(f"ffn_{EXPERT_PARTS[found[1]]}_exps.weight", [["split", 1]])]
    if "experts." in rest and "shared" not in rest:
        return stacked(architecture, rest.split("experts.")[1], shape)
    if rest == "self_attn.kv_b_proj.weight":
        heads, plain, value = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
        keys = [["rows", plain + value, 0, plain], ["split", heads], ["transpose"]]
        return [("attn_k_b.weight", keys), ("attn_v_b.weight", [["rows", plain + value, plain, value], ["split", heads]])]
    if rest == "linear_attn.in_proj_qkvz.weight":
        keys, shared = config["linear_key_head_dim"], config["linear_num_value_heads"] // config["linear_num_key_heads"]
        values, first = shared * config["linear_value_head_dim"], 0
        pieces = []
        for name, rows in (("attn_qkv", keys), ("attn_qkv", keys), ("attn_qkv", values), ("attn_gate", values)):
            pieces.append((f"{name}.weight", [["rows", 2 * (keys + values), first, rows]]))
            first += rows
        return pieces
    steps = tiled(architecture, config, rest)
    if rest.endswith("A_log"):
        steps.append(["rate"])
    if rest in ("mixer.A_log", "mixer.D", "mixer.norm.weight"):
        steps.append(["split", config["n_groups"] if rest.endswith("weight") else shape[0]])
    if rest.endswith("conv1d.weight"):
        steps.append(["join"])
    if architecture in PLUS_ONE and rest.endswith("norm.weight") and not rest.startswith("linear_attn"):
        steps.append(["add", 1.0])
    if whole := WHOLE.get(rest):
        return [(whole, steps)]
    base, kind = rest.rsplit(".", 1)
    name = "post_attention_norm" if base == "post_attention_layernorm" and architecture in POST_NORM else LAYER[base]
    return [(f"{name}.{kind}", steps)]


def stacked(architecture, name, shape):
    """Gates, ups or downs of all experts, which the folder has in one tensor."""
    count = shape[0]
    if architecture == "gemma4":
        return [("ffn_down_exps.weight" if name == "down_proj" else "ffn_gate_up_exps.weight", [])]
    # Columns there are rows here, but in Qwen3.5; gates and ups alternate, or all gates come first.
    turned = [] if architecture == "qwen35moe" else [["transpose"]]
    if name.startswith("down_proj"):
        return [("ffn_down_exps.bias", [])] if name.endswith("bias") else [("ffn_down_exps.weight", turned)]
    kind, steps = ("bias", [["join"]]) if name.endswith("bias") else ("weight", [*turned, ["join"]])
    rows = shape[-1] if turned else shape[1]
    run, own = (2, 1) if architecture == "gpt-oss" else (rows, rows // 2)
    return [(f"ffn_{part}_exps.{kind}", [*steps, ["rows", run, index * own, own], ["split", count]]) for index, part in enumerate(("gate", "up"))]


def tiled(architecture, config, rest):
    """Value heads that share a key head lie apart in the files of Qwen3.5, not side by side."""
    keys, values = config.get("linear_num_key_heads", 1), config.get("linear_num_value_heads", 1)
    base = rest.removeprefix("linear_attn.").removesuffix(".weight")
    if architecture not in ("qwen35", "qwen35moe") or keys == values or not rest.startswith("linear_attn.") or base == "norm":
        return []
    first = 2 * keys * config["linear_key_head_dim"] if base in ("in_proj_qkv", "conv1d") else 0
    step = [["tiled", keys, values // keys, first]]
    return [["transpose"], *step, ["transpose"]] if base == "out_proj" else step


def keys(architecture, config):
    """The keys of a file, without the architecture's name, with their values."""
    heads, head_dim = config["num_attention_heads"], config["head_dim"]
    kv_heads, width = config["num_key_value_heads"], config.get("intermediate_size_mlp", config.get("intermediate_size"))
    layers = config.get("num_hidden_layers") or len(config["layers_block_type"])
    rope = config.get("rope_parameters", {})
    found = {
        "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"], "block_count": layers,
        "feed_forward_length": width, "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
        "attention.value_length": head_dim, "attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-5)),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)), "attention.sliding_window": config.get("sliding_window"),
        "final_logit_softcapping": config.get("final_logit_softcapping"), "vocab_size": config["vocab_size"],
    }
    if "rope_theta" in rope:
        found["rope.freq_base"] = float(rope["rope_theta"])
    if rope.get("rope_type") == "yarn":
        found |= {
            "rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
            "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        }
    found |= of_experts(architecture, config) | OF_FAMILY.get(architecture, lambda config, layers: {})(config, layers)
    return {key: value for key, value in found.items() if value is not None}


def of_experts(architecture, config):
    count = next((config[key] for key in ("num_local_experts", "n_routed_experts", "num_experts") if config.get(key)), None)
    if count is None or architecture == "nemotron_h":
        return {}
    found = {
        "expert_count": count, "expert_used_count": config.get("num_experts_per_tok") or config["top_k_experts"],
        "expert_feed_forward_length": config.get("moe_intermediate_size", config.get("intermediate_size")),
        "expert_shared_count": config.get("n_shared_experts"), "leading_dense_block_count": config.get("first_k_dense_replace"),
        "expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size") or config.get("moe_shared_expert_intermediate_size"),
        "nextn_predict_layers": config.get("num_nextn_predict_layers"),
        "expert_group_count": config.get("n_group"), "expert_group_used_count": config.get("topk_group"),
        "expert_weights_scale": config.get("routed_scaling_factor"),
    }
    if architecture in ("glm4moe", "minimax-m2", "nemotron_h_moe") or config["model_type"] == "deepseek_v3":
        found |= {"expert_gating_func": int(gguf.ExpertGatingFuncType.SIGMOID), "expert_weights_norm": config.get("norm_topk_prob", True)}
    return found


def of_delta_net(config, layers):
    found = {
        "ssm.conv_kernel": config["linear_conv_kernel_dim"], "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"], "ssm.time_step_rank": config["linear_num_value_heads"],
        "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
        "attention.recurrent_layers": [kind == "linear_attention" for kind in config["layer_types"]],
    }
    sections = config["rope_parameters"].get("mrope_section")
    return found | ({"rope.dimension_sections": [*sections, 0]} if sections else {})


def of_latent(config, layers):
    rank, rotated = config["kv_lora_rank"], config["qk_rope_head_dim"]
    found = {
        "attention.q_lora_rank": config.get("q_lora_rank"), "attention.kv_lora_rank": rank, "attention.head_count_kv": 1,
        "attention.key_length": rank + rotated, "attention.value_length": rank,
        "attention.key_length_mla": config["qk_nope_head_dim"] + rotated, "attention.value_length_mla": config["v_head_dim"],
        "rope.dimension_count": rotated,
    }
    if (mscale := config["rope_parameters"].get("mscale_all_dim")) is not None:
        found["rope.scaling.yarn_log_multiplier"] = 0.1 * mscale
    return found


def of_gemma3n(config, layers):
    rope, shares = config["rope_parameters"], config["activation_sparsity_pattern"]
    return {
        "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config["layer_types"]],
        "attention.shared_kv_layers": config["num_kv_shared_layers"],
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "altup.active_idx": config["altup_active_idx"], "altup.num_inputs": config["altup_num_inputs"],
        "activation_sparsity_scale": [statistics.NormalDist().inv_cdf(share) if share else -math.inf for share in shares],
        "rope.freq_base": float(rope["full_attention"]["rope_theta"]), "rope.freq_base_swa": float(rope["sliding_attention"]["rope_theta"]),
    }


def of_gemma4(config, layers):
    windowed = [kind == "sliding_attention" for kind in config["layer_types"]]
    full = config["per_layer_config"][str(windowed.index(False))]
    kv_heads, wide = config["num_key_value_heads"], layers - config["num_kv_shared_layers"] if config["use_double_wide_mlp"] else layers
    rope = config["rope_parameters"]
    return {
        "attention.key_length": full["head_dim"], "attention.value_length": full["head_dim"], "rope.dimension_count": full["head_dim"],
        "attention.key_length_swa": config["head_dim"], "attention.value_length_swa": config["head_dim"],
        "rope.dimension_count_swa": config["head_dim"], "attention.sliding_window_pattern": windowed,
        "attention.head_count_kv": [kv_heads if own else full.get("num_key_value_heads", kv_heads) for own in windowed],
        "attention.shared_kv_layers": config["num_kv_shared_layers"],
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "feed_forward_length": [config["intermediate_size"] * (1 if layer < wide else 2) for layer in range(layers)],
        "rope.freq_base": float(rope["full_attention"]["rope_theta"]), "rope.freq_base_swa": float(rope["sliding_attention"]["rope_theta"]),
    }


def of_nemotron(config, layers):
    kinds = config["layers_block_type"]
    return {
        "ssm.conv_kernel": config["conv_kernel"], "ssm.state_size": config["ssm_state_size"], "ssm.group_count": config["n_groups"],
        "ssm.time_step_rank": config["mamba_num_heads"], "ssm.inner_size": config["mamba_num_heads"] * config["mamba_head_dim"],
        "attention.head_count_kv": [config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in kinds],
        "feed_forward_length": [config["intermediate_size"] if kind in ("mlp", "moe") else 0 for kind in kinds],
        "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"], "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
        "rope.dimension_count": None,
    }


OF_FAMILY = {
    "qwen3next": of_delta_net, "qwen35": of_delta_net, "qwen35moe": of_delta_net, "deepseek2": of_latent, "gemma3n": of_gemma3n, "gemma4": of_gemma4, "nemotron_h": of_nemotron, "nemotron_h_moe": of_nemotron,
    "llama4": lambda config, layers: {
        "interleave_moe_layer_step": config["interleave_moe_layer_step"], "expert_feed_forward_length": config["intermediate_size"],
    },
}


def pieces(architecture, config, tensors):
    """The file's tensors by name, each as a list of (tensor of the folder, steps)."""
    found = {}
    for source, values in tensors.items():
        base, kind = source.rsplit(".", 1)
        if base.startswith("model.altup_"):
            way, number = base.rsplit(".", 1)
            stack = "altup_unembd_proj" if "unembed" in way else "altup_proj"
            found.setdefault(f"{stack}.{kind}", []).append((source, [["split", 1]]))
            continue
        if base in ENDS:
            one = [["add", 1.0]] if architecture in PLUS_ONE and base == "model.norm" else []
            found[f"{ENDS[base]}.{kind}"] = [(source, one)]
            continue
        _, _, layer, rest = source.split(".", 3)
        for name, steps in places(architecture, config, rest, values.shape):
            found.setdefault(f"blk.{layer}.{name}", []).append((source, steps))
    if architecture == "gemma3n":
        # The later tokens of a table with fewer have the row of the first one.
        table, own = "model.embed_tokens_per_layer.weight", config["vocab_size_per_layer_input"]
        found["per_layer_token_embd.weight"] += (config["vocab_size"] - own) * [(table, [["rows", own, 0, 1]])]
    if architecture == "gemma4":
        # A quarter of each wide head is rotated; the rest is divided by so much that it stands still.
        pairs = config["per_layer_config"][str(config["layer_types"].index("full_attention"))]["head_dim"] // 2
        found["rope_freqs.weight"] = [("", [["fill", 1.0, pairs // 4], ["fill", 1e30, pairs - pairs // 4]])]
    return found
