//! A model as Hugging Face's `config.json`.

use crate::model::transformer::{Activation, Architecture, Model, Positions};
use hwprofiles::DType;
use serde_json::{Value, json};

impl Model {
    /// The text of a `config.json` that transformers opens and [`Model::from_config_json`] reads back as the same
    /// model. It uses the spellings of transformers 4 (`torch_dtype`, `rope_theta`, `rope_scaling`), which
    /// transformers 5 accepts too.
    pub fn to_config_json(&self) -> String {
        let config = match self.architecture {
            Architecture::Opt => self.opt_config(),
            Architecture::Phi => self.phi_config(),
            Architecture::GptNeoX => self.neox_config(),
            Architecture::GptJ => self.gptj_config(),
            Architecture::Falcon => self.falcon_config(),
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
            Architecture::Mixtral => ("MixtralForCausalLM", "mixtral"),
            Architecture::Qwen3Moe => ("Qwen3MoeForCausalLM", "qwen3_moe"),
            Architecture::GptOss => ("GptOssForCausalLM", "gpt_oss"),
            Architecture::DeepSeekV2 => ("DeepseekV2ForCausalLM", "deepseek_v2"),
            Architecture::DeepSeekV3 => ("DeepseekV3ForCausalLM", "deepseek_v3"),
            Architecture::Gemma => ("GemmaForCausalLM", "gemma"),
            Architecture::Gemma2 => ("Gemma2ForCausalLM", "gemma2"),
            Architecture::Gemma3 => ("Gemma3ForCausalLM", "gemma3_text"),
            Architecture::Phi3 => ("Phi3ForCausalLM", "phi3"),
            _ if self.wiring.window.is_some() => ("MistralForCausalLM", "mistral"),
            _ => ("LlamaForCausalLM", "llama"),
        };
        let (theta, scaling) = rotation(&self.positions);
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
            "hidden_act": self.activation_name(),
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": torch_name(self.dtype),
        });
        match self.architecture {
            Architecture::Qwen2 => {}
            Architecture::Qwen3 | Architecture::GptOss | Architecture::Gemma => {
                config["attention_bias"] = json!(self.qkv_bias);
            }
            Architecture::Gemma2 | Architecture::Gemma3 => self.write_gemma(&mut config),
            Architecture::Qwen3Moe => {
                config["attention_bias"] = json!(self.qkv_bias);
                config["mlp_only_layers"] = json!([]);
            }
            Architecture::Phi3 => config["partial_rotary_factor"] = json!(self.rotated_part()),
            Architecture::Mixtral | Architecture::DeepSeekV2 | Architecture::DeepSeekV3 => {}
            _ => {
                config["attention_bias"] = json!(self.qkv_bias);
                config["mlp_bias"] = json!(self.ffn_bias);
            }
        }
        self.write_window(&mut config);
        self.write_experts(&mut config);
        self.write_latent(&mut config);
        config
    }

    fn write_experts(&self, config: &mut Value) {
        let Some(experts) = &self.experts else { return };
        config["num_experts_per_tok"] = json!(experts.per_token);
        match self.architecture {
            Architecture::Mixtral | Architecture::GptOss => {
                config["num_local_experts"] = json!(experts.count);
                config["intermediate_size"] = json!(experts.intermediate);
            }
            Architecture::Qwen3Moe => {
                config["num_experts"] = json!(experts.count);
                config["norm_topk_prob"] = json!(experts.normalised);
                config["moe_intermediate_size"] = json!(experts.intermediate);
            }
            _ => {
                config["n_routed_experts"] = json!(experts.count);
                config["norm_topk_prob"] = json!(experts.normalised);
                config["moe_intermediate_size"] = json!(experts.intermediate);
                config["n_shared_experts"] = json!(experts.shared / experts.intermediate);
                config["first_k_dense_replace"] = json!(experts.dense_layers);
            }
        }
    }

    fn write_latent(&self, config: &mut Value) {
        let Some(latent) = self.latent else { return };
        config["q_lora_rank"] = json!(latent.q_rank);
        config["kv_lora_rank"] = json!(latent.kv_rank);
        config["qk_rope_head_dim"] = json!(latent.rope_dim);
        config["qk_nope_head_dim"] = json!(latent.nope_dim);
        config["v_head_dim"] = json!(latent.v_dim);
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
            "activation_function": self.activation_name(),
            "max_position_embeddings": self.max_positions,
            "do_layer_norm_before": true,
            "enable_bias": self.qkv_bias,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": torch_name(self.dtype),
        })
    }

    pub(crate) fn activation_name(&self) -> &'static str {
        match self.activation {
            Activation::SiluGated => "silu",
            Activation::GeluTanhGated => "gelu_pytorch_tanh",
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_new",
        }
    }
}

/// The base of the frequencies, and their scaling as `rope_scaling` has it.
pub(crate) fn rotation(positions: &Positions) -> (f64, Option<Value>) {
    match positions {
        Positions::Learned { .. } => (10000.0, None),
        Positions::Linear { theta, factor } => {
            (*theta, Some(json!({ "factor": factor, "rope_type": "linear" })))
        }
        Positions::Rotary { theta, scaling } => {
            let scaling = scaling.as_ref().map(|scaling| {
                json!({
                    "factor": scaling.factor,
                    "high_freq_factor": scaling.high_freq_factor,
                    "low_freq_factor": scaling.low_freq_factor,
                    "original_max_position_embeddings": scaling.original_max_positions,
                    "rope_type": "llama3",
                })
            });
            (*theta, scaling)
        }
        Positions::Yarn { theta, scaling } => {
            let scaling = json!({
                "attention_factor": scaling.attention,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_max_positions,
                "rope_type": "yarn",
                "truncate": scaling.truncate,
            });
            (*theta, Some(scaling))
        }
        Positions::LongRope { theta, scaling } => {
            let scaling = json!({
                "attention_factor": scaling.attention,
                "long_factor": scaling.long,
                "original_max_position_embeddings": scaling.original_max_positions,
                "rope_type": "longrope",
                "short_factor": scaling.short,
            });
            (*theta, Some(scaling))
        }
    }
}

/// A quantised model's config names the format that it was quantised from.
pub(crate) fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::Bf16 | DType::Fp8 | DType::Int8 | DType::Int4 | DType::Int2 => "bfloat16",
    }
}
