"""The golden models: tiny transformers of every family, each with what its logits must be able to show."""

from dataclasses import dataclass, field

import transformers
from golden_tokenizers import VOCAB, byte_fallback, llama3_tokenizer, opt_tokenizer, qwen_tokenizer


@dataclass(frozen=True)
class Golden:
    """One golden model: how to configure it, and which mistakes its logits must reveal."""

    name: str
    config: transformers.PretrainedConfig
    tokenizer: object
    std: float
    mistakes: dict = field(default_factory=dict)  # configuration keys, each with a wrong value or several
    norm: float = 1.0  # mean of the norms' weights as they are stored
    bias: float = 0.3  # standard deviation of biases
    invisible: str = "-"  # ending of the names of 1-D tensors that provably change nothing
    stds: dict = field(default_factory=dict)  # other standard deviations, by ending of the name
    shard: str = "5GB"


def rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def by_layer(sliding, full):
    """Gemma 3's rotations: the base of layers with windows, and what the others have."""
    return {"sliding_attention": rope(sliding), "full_attention": full}


def goldens():
    t = transformers
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    longrope = {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        "long_factor": [1.5, 2.0, 3.5, 6.0, 10.0, 16.0],
        "original_max_position_embeddings": 8,
        "partial_rotary_factor": 0.75,
    }
    proportional = {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25}
    qwen_ids = dict(bos_token_id=381, eos_token_id=383)
    size = dict(vocab_size=VOCAB, max_position_embeddings=128)
    gemma4 = size | dict(
        hidden_size=64, num_attention_heads=4, head_dim=16, global_head_dim=32, rms_norm_eps=1e-6, sliding_window=13,
        vocab_size_per_layer_input=VOCAB, rope_parameters=by_layer(10000.0, proportional), tie_word_embeddings=True,
    )
    return [
        # A key bias adds the same number to all scores of a query, and softmax drops it; with
        # rotary positions (qwen2) it does not cancel.
        Golden("opt", t.OPTConfig(
            **size, hidden_size=64, word_embed_proj_dim=64, ffn_dim=256, num_hidden_layers=3,
            num_attention_heads=4, tie_word_embeddings=True,
        ), opt_tokenizer, 0.2, {"activation_function": "gelu"}, invisible="k_proj.bias"),
        Golden("llama_gqa", t.LlamaConfig(
            **size, hidden_size=128, intermediate_size=160, num_hidden_layers=2,
            num_attention_heads=8, num_key_value_heads=2, rms_norm_eps=1e-5,
            rope_parameters=rope(10000.0), tie_word_embeddings=False,
        ), byte_fallback, 0.12, {"rope_parameters": rope(500000.0)}),
        # Wavelengths 6, 32, 167, ... against 64/4 and 64/1: one kept, one blended, six divided.
        Golden("llama3_rope", t.LlamaConfig(
            vocab_size=VOCAB, max_position_embeddings=512, hidden_size=64, intermediate_size=176,
            num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
            rope_parameters=rope(500000.0) | llama3, tie_word_embeddings=True,
            bos_token_id=382, eos_token_id=383,
        ), llama3_tokenizer, 0.15, {"rope_parameters": rope(500000.0)}),
        Golden("qwen2", t.Qwen2Config(
            **size, **qwen_ids, hidden_size=96, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=6, num_key_value_heads=2, rms_norm_eps=1e-6,
            rope_parameters=rope(1000000.0), tie_word_embeddings=False,
        ), qwen_tokenizer, 0.13, {"rope_parameters": rope(10000.0)}),
        # 4 heads of 32 on a hidden size of 64: head_dim cannot be derived.
        Golden("qwen3", t.Qwen3Config(
            **size, **qwen_ids, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6,
            rope_parameters=rope(1000000.0), tie_word_embeddings=True,
        ), qwen_tokenizer, 0.15, {"rope_parameters": rope(10000.0)}),
        # The only large eps: with the usual 1e-5 nobody would notice it being ignored.
        Golden("mistral_sharded", t.MistralConfig(
            **size, hidden_size=64, intermediate_size=192, num_hidden_layers=3,
            num_attention_heads=8, num_key_value_heads=4, rms_norm_eps=1e-2, sliding_window=None,
            rope_parameters=rope(1000000.0), tie_word_embeddings=False,
        ), byte_fallback, 0.15,
            {"rope_parameters": rope(10000.0), "rms_norm_eps": 1e-6}, shard="300KB"),
        # Few layers: where two experts' scores nearly tie, another order of summation could choose the other.
        Golden("mixtral", t.MixtralConfig(
            **size, hidden_size=64, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2,
            rms_norm_eps=1e-5, sliding_window=None, rope_parameters=rope(1000000.0),
            tie_word_embeddings=False,
        ), byte_fallback, 0.15, {"rope_parameters": rope(10000.0), "num_experts_per_tok": 1}),
        # Sinks, a window that sequences are several times as long as, a gate with a limit that it often reaches, biases of
        # router and experts, all experts of a layer in one tensor with gates and ups in turn.
        Golden("gpt_oss", t.GptOssConfig(
            **size, hidden_size=64, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_local_experts=5, num_experts_per_tok=2,
            rms_norm_eps=1e-5, sliding_window=11, swiglu_limit=0.8, tie_word_embeddings=False,
            rope_parameters=rope(150000.0) | yarn | {"truncate": False},
            pad_token_id=0, bos_token_id=1, eos_token_id=2,
        ), byte_fallback, 0.15,
            {"sliding_window": 96, "swiglu_limit": 7.0, "num_experts_per_tok": 1,
             "rope_parameters": [rope(150000.0) | {"truncate": False}, rope(150000.0) | yarn | {"truncate": True}]}),
        # Weights that are not normalised; a width that is no multiple of 32.
        Golden("qwen3_moe", t.Qwen3MoeConfig(
            **size, **qwen_ids, hidden_size=64, intermediate_size=160, moe_intermediate_size=40,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
            num_experts=8, num_experts_per_tok=3, norm_topk_prob=False, rms_norm_eps=1e-6,
            rope_parameters=rope(1000000.0), tie_word_embeddings=True,
        ), qwen_tokenizer, 0.15, {"norm_topk_prob": True, "num_experts_per_tok": 2}),
        # 4 heads of 24 on one KV head; norms that are stored as the difference from 1.
        Golden("gemma", t.GemmaConfig(
            **size, hidden_size=64, intermediate_size=136, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=1, head_dim=24, rms_norm_eps=1e-6,
            rope_parameters=rope(10000.0), tie_word_embeddings=True,
        ), byte_fallback, 0.2, {"rope_parameters": rope(500000.0), "hidden_act": "silu"}, norm=0.0),
        # Sequences are several times as long as the windows of the next three. This one's are in layers 0 and 2. Matrices are
        # small and norms large: what norms behind sublayers let through must outweigh the embedding, which the head looks for.
        Golden("gemma2", t.Gemma2Config(
            **size, hidden_size=64, intermediate_size=136, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6,
            query_pre_attn_scalar=48, sliding_window=20, attn_logit_softcapping=4.0, final_logit_softcapping=6.0,
            rope_parameters=rope(10000.0), tie_word_embeddings=True,
        ), byte_fallback, 0.1,
            {"sliding_window": 96, "query_pre_attn_scalar": 32, "attn_logit_softcapping": None,
             "final_logit_softcapping": None, "rope_parameters": rope(500000.0)}),
        # Windows in all layers but the third, which has another rotation.
        Golden("gemma3", t.Gemma3TextConfig(
            **size, hidden_size=64, intermediate_size=120, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=1, head_dim=16, rms_norm_eps=1e-6,
            query_pre_attn_scalar=16, sliding_window=13, sliding_window_pattern=3,
            rope_parameters=by_layer(10000.0, rope(1000000.0) | {"rope_type": "linear", "factor": 8.0}),
            tie_word_embeddings=True,
        ), byte_fallback, 0.1,
            {"sliding_window": 96, "query_pre_attn_scalar": 32,
             "rope_parameters": by_layer(1000000.0, rope(1000000.0) | {"rope_type": "linear", "factor": 8.0})}),
        # Heads of two widths, values that are the keys before their rotation, numbers that scale layers. The norm behind the
        # last layer undoes that layer's number.
        Golden("gemma4", t.Gemma4TextConfig(
            **gemma4, num_hidden_layers=4, num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "full_attention"],
            intermediate_size=120, hidden_size_per_layer_input=0, final_logit_softcapping=4.0,
        ), byte_fallback, 0.1,
            {"sliding_window": 96, "final_logit_softcapping": None,
             "rope_parameters": [by_layer(1000000.0, proportional), by_layer(10000.0, proportional | {"partial_rotary_factor": 1.0})]},
            invisible="layers.3.layer_scalar", norm=1.5),
        # A network beside experts, with norms in front of and behind each.
        Golden("gemma4_moe", t.Gemma4TextConfig(
            **gemma4, num_hidden_layers=2, num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
            layer_types=["sliding_attention", "full_attention"], intermediate_size=56, hidden_size_per_layer_input=0,
            enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=48,
        ), byte_fallback, 0.1, {"sliding_window": 96, "top_k_experts": 1}, invisible="layers.1.layer_scalar"),
        # An embedding for each layer; the last three layers attend to keys and values of earlier ones, and have wider networks.
        Golden("gemma4_shared", t.Gemma4TextConfig(
            **gemma4, num_hidden_layers=6, num_key_value_heads=1, intermediate_size=56, hidden_size_per_layer_input=24,
            layer_types=2 * ["sliding_attention", "sliding_attention", "full_attention"], num_kv_shared_layers=3,
            use_double_wide_mlp=True,
        ), byte_fallback, 0.1, {"sliding_window": 96}, invisible="layers.5.layer_scalar"),
        # Four residual streams, of which layers compute the first; a learned addition beside attention; gates below a cutoff are
        # 0 in three layers; embeddings of each layer for a part of the tokens; four layers attend to keys and values of earlier ones.
        Golden("gemma3n", t.Gemma3nTextConfig(
            **size, hidden_size=64, intermediate_size=120, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, rms_norm_eps=1e-6, sliding_window=13, vocab_size_per_layer_input=VOCAB - 64, hidden_size_per_layer_input=24,
            layer_types=2 * ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
            laurel_rank=8, altup_num_inputs=4, num_kv_shared_layers=4, final_logit_softcapping=4.0,
            activation_sparsity_pattern=[0.95, 0.6, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0],
            rope_parameters=by_layer(10000.0, rope(1000000.0)), tie_word_embeddings=True,
        ), byte_fallback, 0.1,
            {"sliding_window": 96, "final_logit_softcapping": 30.0,
             "activation_sparsity_pattern": [8 * [0.0], [0.95, 0.6, 0.75] + 5 * [0.0]],
             "rope_parameters": by_layer(1000000.0, rope(1000000.0))},
            stds={"modality_router.weight": 5.0, "_coefs.weight": 0.2, "post_per_layer_input_norm.weight": 0.8}, norm=1.5),
        Golden("mistral_window", t.MistralConfig(
            **size, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, sliding_window=17,
            rope_parameters=rope(10000.0), tie_word_embeddings=False,
        ), byte_fallback, 0.15, {"sliding_window": None}),
        # 10 of 20 columns of a head are rotated; one norm; a bias on the logits. See opt: what is not
        # rotated of a key's bias cancels, and what is does not.
        Golden("phi", t.PhiConfig(
            **size, hidden_size=80, intermediate_size=144, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, layer_norm_eps=1e-2,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5},
            tie_word_embeddings=False,
        ), qwen_tokenizer, 0.2,
            {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0},
             "layer_norm_eps": 1e-6}, bias=0.5),
        # Pairs that are kept, blended and stretched four times; the context of the first training stage is shorter than ours.
        Golden("qwen2_yarn", t.Qwen2Config(
            vocab_size=VOCAB, max_position_embeddings=128, **qwen_ids, hidden_size=64, intermediate_size=112, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
            rope_parameters=rope(1000000.0) | yarn, tie_word_embeddings=False,
        ), qwen_tokenizer, 0.15,
            {"rope_parameters": [rope(1000000.0), rope(1000000.0) | yarn | {"attention_factor": 1.0}]}),
        # Six of eight pairs are rotated, each divided by its own number; all sequences are longer than the first context.
        Golden("phi3_long", t.Phi3Config(
            **size, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, original_max_position_embeddings=8,
            rope_parameters=rope(10000.0) | longrope, tie_word_embeddings=False, pad_token_id=0, eos_token_id=2,
        ), byte_fallback, 0.19,
            {"rope_parameters": [
                rope(10000.0) | longrope | {"long_factor": longrope["short_factor"]},
                rope(10000.0) | longrope | {"attention_factor": 1.0},
            ]}),
        # q, k, v in one tensor; gate and up in one, of a width that is no multiple of 16.
        Golden("phi3", t.Phi3Config(
            **size, hidden_size=64, intermediate_size=120, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.75},
            tie_word_embeddings=False, pad_token_id=0, eos_token_id=2,
        ), byte_fallback, 0.16,
            {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0}}),
        # 4 of 16 columns rotated; q, k, v of each head side by side; two norms of one residual.
        Golden("gpt_neox", t.GPTNeoXConfig(
            **size, hidden_size=64, intermediate_size=256, num_hidden_layers=3,
            num_attention_heads=4, hidden_act="gelu", use_parallel_residual=True,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.25},
            tie_word_embeddings=False,
        ), qwen_tokenizer, 0.19,
            {"use_parallel_residual": False, "rope_parameters": rope(10000.0) | {"partial_rotary_factor": 0.5}}),
        Golden("gpt_neox_sequential", t.GPTNeoXConfig(
            **size, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
            num_attention_heads=2, hidden_act="gelu_fast", use_parallel_residual=False,
            attention_bias=False,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 1.0},
            tie_word_embeddings=True,
        ), qwen_tokenizer, 0.2, {"use_parallel_residual": True}),
        # 8 of 16 columns rotated, in pairs of neighbours.
        Golden("gptj", t.GPTJConfig(
            vocab_size=VOCAB, n_positions=128, n_embd=64, n_inner=112, n_layer=2, n_head=4, rotary_dim=8,
            tie_word_embeddings=False, bos_token_id=381, eos_token_id=383,
        ), qwen_tokenizer, 0.2, {"rotary_dim": 4}, bias=0.5),
        # Latent attention with its queries expanded from a shorter vector, a dense layer in front, groups of experts
        # of which a token chooses two, and a shared expert; YaRN also scales the scores.
        Golden("deepseek_v3", t.DeepseekV3Config(
            **size, hidden_size=64, intermediate_size=80, moe_intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=32, qk_rope_head_dim=8,
            qk_nope_head_dim=16, v_head_dim=12, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
            n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.5, norm_topk_prob=True,
            rms_norm_eps=1e-6, rope_parameters=rope(10000.0) | yarn | {"mscale": 1.0, "mscale_all_dim": 2.0},
            tie_word_embeddings=False, num_nextn_predict_layers=0,
        ), byte_fallback, 0.16,
            {"rope_parameters": rope(10000.0) | yarn | {"mscale": 1.0, "mscale_all_dim": 1.0},
             "routed_scaling_factor": 1.0, "topk_group": 4}),
        # Queries from the residual, weights of experts that are not normalised, two shared experts.
        Golden("deepseek_v2", t.DeepseekV2Config(
            **size, hidden_size=64, intermediate_size=80, moe_intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=20, qk_rope_head_dim=8,
            qk_nope_head_dim=12, v_head_dim=16, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=1,
            topk_method="group_limited_greedy", n_shared_experts=2, first_k_dense_replace=1,
            routed_scaling_factor=2.0, norm_topk_prob=False, rms_norm_eps=1e-6, rope_parameters=rope(10000.0),
            tie_word_embeddings=False,
        ), byte_fallback, 0.16,
            {"rope_parameters": rope(500000.0), "routed_scaling_factor": 1.0, "topk_method": "greedy"}),
        # Half of each head is rotated; biases on q, k, v; a sigmoid router without groups.
        Golden("glm4_moe", t.Glm4MoeConfig(
            **size, hidden_size=64, intermediate_size=80, moe_intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, n_routed_experts=8, num_experts_per_tok=2,
            n_group=1, topk_group=1, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.5,
            attention_bias=True, use_qk_norm=False, rms_norm_eps=1e-5, num_nextn_predict_layers=0,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5}, tie_word_embeddings=False,
        ), byte_fallback, 0.16,
            {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0}, "routed_scaling_factor": 1.0}, bias=0.5),
        # Norms over all heads of q and of k, half of each head rotated, a sigmoid router whose choice is corrected.
        Golden("minimax_m2", t.MiniMaxM2Config(
            **size, **qwen_ids, hidden_size=64, intermediate_size=40, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=6, num_experts_per_tok=2,
            rms_norm_eps=1e-5, rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5}, tie_word_embeddings=False,
        ), qwen_tokenizer, 0.16,
            {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0}, "num_experts_per_tok": 1}),
        # Three layers in chunks whose q and k are rotated in pairs of neighbours and then normed, one that sees everything
        # and does neither, with queries that grow with their position; experts in every second layer, whose inputs are scaled.
        Golden("llama4", t.Llama4TextConfig(
            **size, hidden_size=64, intermediate_size=48, intermediate_size_mlp=80, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=5, num_experts_per_tok=2,
            interleave_moe_layer_step=2, attention_chunk_size=13, no_rope_layer_interval=4, floor_scale=16, attn_scale=0.6,
            rms_norm_eps=1e-5, rope_parameters=rope(10000.0), tie_word_embeddings=False, pad_token_id=0,
        ), byte_fallback, 0.15,
            {"attention_chunk_size": 96, "use_qk_norm": False, "attn_temperature_tuning": False, "num_experts_per_tok": 1,
             "no_rope_layers": [[1, 1, 1, 1]], "attn_scale": 0.1, "rope_parameters": rope(500000.0)}),
        # Gated delta nets and gated attention in turn; two heads of values for each head of keys.
        Golden("qwen3_next", t.Qwen3NextConfig(
            **size, **qwen_ids, hidden_size=64, intermediate_size=80, moe_intermediate_size=32,
            shared_expert_intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
            linear_value_head_dim=16, linear_conv_kernel_dim=4, num_experts=6, num_experts_per_tok=2,
            layer_types=2 * ["linear_attention", "full_attention"], rms_norm_eps=1e-6,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5}, tie_word_embeddings=False,
        ), qwen_tokenizer, 0.16,
            {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0}, "norm_topk_prob": False}, norm=0.0, bias=1.0),
        # Keys as wide as values, as llama.cpp wants them.
        Golden("qwen3_next_square", t.Qwen3NextConfig(
            **size, **qwen_ids, hidden_size=64, intermediate_size=80, moe_intermediate_size=32,
            shared_expert_intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
            linear_value_head_dim=16, linear_conv_kernel_dim=4, num_experts=6, num_experts_per_tok=2,
            layer_types=["linear_attention", "full_attention"], rms_norm_eps=1e-6,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5}, tie_word_embeddings=False,
        ), qwen_tokenizer, 0.16,
            {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0}, "norm_topk_prob": False}, norm=0.0, bias=1.0),
        # The same mixers with projections of their own, and a network instead of experts.
        Golden("qwen3_5", t.Qwen3_5TextConfig(
            **size, **qwen_ids, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2,
            linear_key_head_dim=16, linear_value_head_dim=12, linear_conv_kernel_dim=3,
            layer_types=["linear_attention", "full_attention"], rms_norm_eps=1e-6,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
            tie_word_embeddings=True,
        ), qwen_tokenizer, 0.16, {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0, "mrope_section": [3, 3, 2]}}, norm=0.0, bias=1.0),
        # Three heads of values for each head of keys, of one width, as llama.cpp wants them.
        Golden("qwen3_5_heads", t.Qwen3_5TextConfig(
            **size, **qwen_ids, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6,
            linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4,
            layer_types=["linear_attention", "full_attention"], rms_norm_eps=1e-6,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
            tie_word_embeddings=True,
        ), qwen_tokenizer, 0.16, {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0, "mrope_section": [3, 3, 2]}}, norm=0.0, bias=1.0),
        # The same with experts, all of a layer in one tensor, and a shared one with a gate.
        Golden("qwen3_5_moe", t.Qwen3_5MoeTextConfig(
            **size, **qwen_ids, hidden_size=64, moe_intermediate_size=32, shared_expert_intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
            linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4, num_experts=6, num_experts_per_tok=2,
            layer_types=["linear_attention", "full_attention"], rms_norm_eps=1e-6,
            rope_parameters=rope(10000.0) | {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
            tie_word_embeddings=False,
        ), qwen_tokenizer, 0.16, {"rope_parameters": rope(10000.0) | {"partial_rotary_factor": 1.0, "mrope_section": [3, 3, 2]}}, norm=0.0, bias=1.0),
        # Layers of one sublayer: Mamba-2 with two groups of heads, attention without positions, networks of ReLU².
        Golden("nemotron_h", t.NemotronHConfig(
            **size, hidden_size=64, intermediate_size=112, layers_block_type=["mamba", "mlp", "attention", "mlp", "mamba"],
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, mamba_num_heads=6, mamba_head_dim=12,
            ssm_state_size=20, n_groups=2, conv_kernel=4, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
        ), byte_fallback, 0.16, {"mlp_hidden_act": "relu", "layer_norm_epsilon": 1.0}, bias=1.0),
        # The same with experts of ReLU², without gates, beside a shared one; a sigmoid router whose choice is corrected.
        Golden("nemotron_h_moe", t.NemotronHConfig(
            **size, hidden_size=64, intermediate_size=40, layers_block_type=["mamba", "moe", "attention", "moe"],
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, mamba_num_heads=6, mamba_head_dim=12,
            ssm_state_size=20, n_groups=2, conv_kernel=4, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
            n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, moe_shared_expert_intermediate_size=48,
            n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
        ), byte_fallback, 0.16, {"routed_scaling_factor": 1.0, "norm_topk_prob": False}, bias=1.0),
        # One head of keys and values, one norm.
        Golden("falcon_7b", t.FalconConfig(
            **size, hidden_size=96, num_hidden_layers=3, num_attention_heads=6,
            multi_query=True, parallel_attn=True, new_decoder_architecture=False, bias=False,
            rope_parameters=rope(10000.0), tie_word_embeddings=True,
        ), byte_fallback, 0.2, {"rope_parameters": rope(500000.0)}),
        # Groups of 4 heads with their keys and values in one tensor, two norms, biases.
        Golden("falcon_40b", t.FalconConfig(
            **size, hidden_size=64, ffn_hidden_size=144, num_hidden_layers=3,
            num_attention_heads=8, num_kv_heads=2, new_decoder_architecture=True, bias=True,
            rope_parameters=rope(10000.0), tie_word_embeddings=False,
        ), byte_fallback, 0.2, {"rope_parameters": rope(500000.0)}),
    ]
