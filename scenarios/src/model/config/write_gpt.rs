//! Phi, GPT-NeoX, GPT-J and Falcon as a `config.json`.

use crate::model::config::write::{rotation, torch_name};
use crate::model::transformer::Model;
use crate::model::wiring::Block;
use serde_json::{Value, json};

impl Model {
    /// The part of each head that is rotated, as a number whose product with the head's width has the rotated columns as
    /// its whole part.
    pub(crate) fn rotated_part(&self) -> f64 {
        let (rotated, all) = (self.rotated_width() as f64, self.head_dim as f64);
        // Few digits, which read back as the same number, where they are enough.
        let short = (rotated / all * 10000.0).round() / 10000.0;
        if (short * all) as u64 == self.rotated_width() { short } else { (rotated + 0.5) / all }
    }

    pub(crate) fn phi_config(&self) -> Value {
        let (theta, scaling) = rotation(&self.positions);
        json!({
            "architectures": ["PhiForCausalLM"],
            "model_type": "phi",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "hidden_act": self.activation_name(),
            "max_position_embeddings": self.max_positions,
            "layer_norm_eps": self.norm_eps,
            "qk_layernorm": false,
            "partial_rotary_factor": self.rotated_part(),
            "rope_theta": theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": false,
            "torch_dtype": torch_name(self.dtype),
        })
    }

    pub(crate) fn neox_config(&self) -> Value {
        let (theta, scaling) = rotation(&self.positions);
        json!({
            "architectures": ["GPTNeoXForCausalLM"],
            "model_type": "gpt_neox",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "hidden_act": self.activation_name(),
            "max_position_embeddings": self.max_positions,
            "layer_norm_eps": self.norm_eps,
            "attention_bias": self.qkv_bias,
            "use_parallel_residual": self.is_parallel(),
            "rotary_pct": self.rotated_part(),
            "rotary_emb_base": theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": torch_name(self.dtype),
        })
    }

    pub(crate) fn gptj_config(&self) -> Value {
        json!({
            "architectures": ["GPTJForCausalLM"],
            "model_type": "gptj",
            "vocab_size": self.vocab,
            "n_embd": self.hidden,
            "n_inner": self.intermediate,
            "n_layer": self.layers,
            "n_head": self.heads,
            "n_positions": self.max_positions,
            "rotary_dim": self.rotated_width(),
            "activation_function": self.activation_name(),
            "layer_norm_epsilon": self.norm_eps,
            "tie_word_embeddings": false,
            "torch_dtype": torch_name(self.dtype),
        })
    }

    pub(crate) fn falcon_config(&self) -> Value {
        let (theta, scaling) = rotation(&self.positions);
        let parallel = self.is_parallel();
        // The older classes have one head of keys and values, or as many as of queries.
        let old = self.wiring.block != Block::Parallel && (self.kv_heads == 1 || self.kv_heads == self.heads);
        let mut config = json!({
            "architectures": ["FalconForCausalLM"],
            "model_type": "falcon",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "ffn_hidden_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "activation": self.activation_name(),
            "max_position_embeddings": self.max_positions,
            "layer_norm_epsilon": self.norm_eps,
            "alibi": false,
            "bias": self.qkv_bias,
            "multi_query": self.kv_heads == 1,
            "new_decoder_architecture": !old,
            "parallel_attn": parallel,
            "rope_theta": theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": torch_name(self.dtype),
        });
        if !old {
            config["num_kv_heads"] = json!(self.kv_heads);
            config["num_ln_in_parallel_attn"] =
                json!(if self.wiring.block == Block::Parallel { 2 } else { 1 });
        }
        config
    }
}
