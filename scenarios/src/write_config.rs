//! A model as Hugging Face's `config.json`.

use crate::model::{Activation, Architecture, Model, Positions};
use hwprofiles::DType;
use serde_json::{Value, json};

impl Model {
    /// The text of a `config.json` that transformers opens and [`Model::from_config_json`] reads back as the same
    /// model. It uses the spellings of transformers 4 (`torch_dtype`, `rope_theta`, `rope_scaling`), which
    /// transformers 5 accepts too.
    pub fn to_config_json(&self) -> String {
        let config = match self.architecture {
            Architecture::Opt => self.opt_config(),
            _ => self.llama_config(),
        };
        // A value without non-text keys always has a text.
        let text = serde_json::to_string_pretty(&config).unwrap_or_default();
        text + "\n"
    }

    fn llama_config(&self) -> Value {
        let (class, model_type) = match self.architecture {
            Architecture::Qwen2 => ("Qwen2ForCausalLM", "qwen2"),
            Architecture::Qwen3 => ("Qwen3ForCausalLM", "qwen3"),
            Architecture::Llama | Architecture::Opt => ("LlamaForCausalLM", "llama"),
        };
        let (theta, scaling) = match self.positions {
            Positions::Rotary { theta, scaling } => (theta, scaling),
            Positions::Learned { .. } => (10000.0, None),
        };
        let scaling = scaling.map(|scaling| {
            json!({
                "factor": scaling.factor,
                "high_freq_factor": scaling.high_freq_factor,
                "low_freq_factor": scaling.low_freq_factor,
                "original_max_position_embeddings": scaling.original_max_positions,
                "rope_type": "llama3",
            })
        });
        let mut config = json!({
            "architectures": [class],
            "model_type": model_type,
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": torch_name(self.dtype),
        });
        match self.architecture {
            Architecture::Qwen2 => config["use_sliding_window"] = json!(false),
            Architecture::Qwen3 => {
                config["use_sliding_window"] = json!(false);
                config["attention_bias"] = json!(self.qkv_bias);
            }
            Architecture::Llama | Architecture::Opt => {
                config["attention_bias"] = json!(self.qkv_bias);
                config["mlp_bias"] = json!(self.ffn_bias);
            }
        }
        config
    }

    fn opt_config(&self) -> Value {
        json!({
            "architectures": ["OPTForCausalLM"],
            "model_type": "opt",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "word_embed_proj_dim": self.hidden,
            "ffn_dim": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "activation_function": match self.activation {
                Activation::Gelu => "gelu",
                Activation::GeluTanh => "gelu_new",
                Activation::Relu | Activation::SiluGated => "relu",
            },
            "max_position_embeddings": self.max_positions,
            "do_layer_norm_before": true,
            "enable_bias": self.qkv_bias,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": torch_name(self.dtype),
        })
    }
}

/// A quantised model's config names the format that it was quantised from.
fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::Bf16 | DType::Fp8 | DType::Int8 | DType::Int4 => "bfloat16",
    }
}
