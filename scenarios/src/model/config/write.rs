//! Writes a model as Hugging Face's `config.json`.

use crate::input::error::ScenarioError;
use crate::model::architecture::{Activation, Architecture};
use crate::model::mixer::Mixer;
use crate::model::positions::Positions;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;
use crate::model::wiring::{BlockOrder, sparsity};
use hwprofiles::DType;
use serde_json::{Value, json};

impl Model {
    /// Writes the text of a `config.json`. Transformers can open it, and
    /// [`Model::from_config_json`] reads the same model back, without the formats of published
    /// weights: the text is for weights in the model's own format. It uses the spellings of
    /// transformers 4 (`torch_dtype`, `rope_theta`, `rope_scaling`), which transformers 5 accepts
    /// too.
    ///
    /// # Errors
    /// The family is one that is counted only: use the `config.json` that the model came with.
    pub fn to_config_json(&self) -> Result<String, ScenarioError> {
        let config = match self.architecture {
            Architecture::Opt => self.opt_config(),
            Architecture::Phi => self.phi_config(),
            Architecture::GptNeoX => self.neox_config(),
            Architecture::GptJ => self.gptj_config(),
            Architecture::Falcon => self.falcon_config(),
            _ => match self.class_name() {
                Some(names) => self.llama_config(names),
                None => {
                    return Err(ScenarioError::Unsupported {
                        place: self.name.clone(),
                        key: "architecture".to_owned(),
                        value: format!("{:?}", self.architecture),
                        reason: "no config.json is written for this family: use the model's own".to_owned(),
                    });
                }
            },
        };
        // All keys are texts, so the value can always be written.
        let text = serde_json::to_string_pretty(&config).unwrap_or_default();
        Ok(text + "\n")
    }

    /// The class and the model type of a family like Llama.
    fn class_name(&self) -> Option<(&'static str, &'static str)> {
        let mixture = |names| Some(names).filter(|_| self.experts.is_some());
        match self.architecture {
            Architecture::Qwen2 => Some(("Qwen2ForCausalLM", "qwen2")),
            Architecture::Qwen3 => Some(("Qwen3ForCausalLM", "qwen3")),
            Architecture::Mixtral => Some(("MixtralForCausalLM", "mixtral")),
            Architecture::Qwen3Moe => Some(("Qwen3MoeForCausalLM", "qwen3_moe")),
            Architecture::GptOss => Some(("GptOssForCausalLM", "gpt_oss")),
            Architecture::DeepSeekV2 => mixture(("DeepseekV2ForCausalLM", "deepseek_v2")),
            Architecture::DeepSeekV3 => mixture(("DeepseekV3ForCausalLM", "deepseek_v3")),
            Architecture::Gemma => Some(("GemmaForCausalLM", "gemma")),
            Architecture::Gemma2 => Some(("Gemma2ForCausalLM", "gemma2")),
            Architecture::Gemma3 => Some(("Gemma3ForCausalLM", "gemma3_text")),
            Architecture::Gemma3n => Some(("Gemma3nForCausalLM", "gemma3n_text")),
            Architecture::Phi3 => Some(("Phi3ForCausalLM", "phi3")),
            Architecture::Glm4Moe => mixture(("Glm4MoeForCausalLM", "glm4_moe")),
            Architecture::MiniMaxM2 => mixture(("MiniMaxM2ForCausalLM", "minimax_m2")),
            Architecture::Llama4 => mixture(("Llama4ForCausalLM", "llama4_text")),
            Architecture::Qwen3Next => mixture(("Qwen3NextForCausalLM", "qwen3_next")),
            Architecture::Qwen35 if self.experts.is_some() => {
                Some(("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"))
            }
            Architecture::Qwen35 => Some(("Qwen3_5ForCausalLM", "qwen3_5_text")),
            Architecture::Llama if self.shapes().iter().any(|shape| shape.wiring.window.is_some()) => {
                Some(("MistralForCausalLM", "mistral"))
            }
            Architecture::Llama => Some(("LlamaForCausalLM", "llama")),
            _ => None,
        }
    }

    fn llama_config(&self, (class, model_type): (&str, &str)) -> Value {
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
            Architecture::Qwen3 | Architecture::Gemma => {
                config["attention_bias"] = json!(self.qkv_bias);
            }
            Architecture::GptOss => {
                config["attention_bias"] = json!(self.qkv_bias);
                config["swiglu_limit"] = json!(self.wiring.gate_limit);
            }
            Architecture::Gemma2 | Architecture::Gemma3 => self.write_gemma(&mut config),
            Architecture::Gemma3n => self.write_gemma3n(&mut config),
            Architecture::Qwen3Moe => config["attention_bias"] = json!(self.qkv_bias),
            Architecture::Phi3 => config["partial_rotary_factor"] = json!(self.rotated_share()),
            Architecture::Mixtral | Architecture::DeepSeekV2 | Architecture::DeepSeekV3 => {}
            Architecture::Glm4Moe | Architecture::MiniMaxM2 => self.write_partly_rotated(&mut config),
            Architecture::Llama4 => self.write_llama4(&mut config),
            Architecture::Qwen3Next | Architecture::Qwen35 => self.write_delta(&mut config),
            _ => {
                config["attention_bias"] = json!(self.qkv_bias);
                config["mlp_bias"] = json!(self.ffn_bias);
            }
        }
        self.write_window(&mut config);
        self.write_experts(&mut config);
        self.write_latent(&mut config);
        let said = ["partial_rotary_factor", "rotary_dim"].iter().any(|key| config.get(key).is_some());
        if let Some(width) = self.wiring.rotary_dim.filter(|_| !said) {
            config["rotary_dim"] = json!(width);
        }
        config
    }

    fn write_experts(&self, config: &mut Value) {
        let Some(experts) = &self.experts else { return };
        config["num_experts_per_tok"] = json!(experts.per_token);
        if experts.groups > 1 {
            config["n_group"] = json!(experts.groups);
            config["topk_group"] = json!(experts.groups_per_token);
        }
        match self.architecture {
            Architecture::Mixtral | Architecture::GptOss | Architecture::MiniMaxM2 | Architecture::Llama4 => {
                config["num_local_experts"] = json!(experts.count);
                // One width says both and no layer is dense, unless there are keys that say so.
                let has_plain_keys =
                    matches!(self.architecture, Architecture::Mixtral | Architecture::GptOss);
                let has_own_width =
                    self.architecture != Architecture::Llama4 && experts.intermediate != self.intermediate;
                let key = if has_own_width { "moe_intermediate_size" } else { "intermediate_size" };
                config[key] = json!(experts.intermediate);
                let dense = self.dense_layers();
                if has_plain_keys && !dense.is_empty() {
                    config["mlp_only_layers"] = json!(dense);
                }
                if self.architecture == Architecture::MiniMaxM2 {
                    config["shared_intermediate_size"] = json!(experts.shared);
                    config["routed_scaling_factor"] = json!(experts.weight_scale);
                    let sparse = |layer| u8::from(self.layer(layer).experts.is_some());
                    config["moe_layer_freq"] = (0..self.layers).map(sparse).collect();
                }
            }
            Architecture::Qwen3Moe | Architecture::Qwen3Next | Architecture::Qwen35 => {
                config["num_experts"] = json!(experts.count);
                config["norm_topk_prob"] = json!(experts.normalised);
                config["moe_intermediate_size"] = json!(experts.intermediate);
                config["mlp_only_layers"] = json!(self.dense_layers());
                // Families with shared experts have them where no key says how wide they are.
                if experts.shared > 0 || self.architecture != Architecture::Qwen3Moe {
                    config["shared_expert_intermediate_size"] = json!(experts.shared);
                }
            }
            _ => {
                config["n_routed_experts"] = json!(experts.count);
                config["norm_topk_prob"] = json!(experts.normalised);
                config["moe_intermediate_size"] = json!(experts.intermediate);
                match experts.shared.is_multiple_of(experts.intermediate) {
                    true => config["n_shared_experts"] = json!(experts.shared / experts.intermediate),
                    false => config["shared_expert_intermediate_size"] = json!(experts.shared),
                }
                config["routed_scaling_factor"] = json!(experts.weight_scale);
                if self.architecture == Architecture::DeepSeekV2 {
                    let grouped = experts.groups > 1;
                    config["topk_method"] = json!(if grouped { "group_limited_greedy" } else { "greedy" });
                }
                let dense = self.dense_layers();
                config["first_k_dense_replace"] = json!(dense.len());
                if dense.iter().zip(0..).any(|(layer, place)| *layer != place) {
                    let list: Vec<_> =
                        (0..self.layers).map(|layer| u8::from(!dense.contains(&layer))).collect();
                    let leading = list.iter().take_while(|sparse| **sparse == 0).count();
                    config["first_k_dense_replace"] = json!(leading);
                    config["moe_layer_freq"] = json!(list);
                }
                if self.mtp > 0 {
                    config["num_nextn_predict_layers"] = json!(self.mtp);
                }
            }
        }
    }

    /// Writes what GLM-4.5 and MiniMax-M2 have.
    fn write_partly_rotated(&self, config: &mut Value) {
        config["attention_bias"] = json!(self.qkv_bias);
        config["use_qk_norm"] = json!(self.qk_norm);
        if self.architecture == Architecture::MiniMaxM2 {
            config["rotary_dim"] = json!(self.rotated_width());
            let corrects = self.experts.as_ref().is_some_and(|experts| experts.router_bias);
            config["use_routing_bias"] = json!(corrects);
        } else {
            config["partial_rotary_factor"] = json!(self.rotated_share());
            config["num_nextn_predict_layers"] = json!(self.mtp);
        }
    }

    fn write_llama4(&self, config: &mut Value) {
        let each = |says: fn(&Model) -> bool| (0..self.layers).map(move |layer| says(self.layer(layer)));
        let find = |says: fn(&Model) -> bool| self.shapes().iter().find(|shape| says(shape));
        config["attention_bias"] = json!(self.qkv_bias);
        config["intermediate_size_mlp"] = json!(self.intermediate);
        let window = self.shapes().iter().find_map(|shape| shape.wiring.window);
        config["attention_chunk_size"] = json!(window.map_or(self.max_positions, |window| window.tokens));
        let chunked = each(|layer| layer.wiring.window.is_some());
        let kind = |chunked| if chunked { "chunked_attention" } else { "full_attention" };
        config["layer_types"] = chunked.map(kind).collect();
        config["no_rope_layers"] = each(|layer| !layer.wiring.unrotated).map(u8::from).collect();
        let with = (0..self.layers).zip(each(|layer| layer.experts.is_some()));
        let with: Vec<u64> = with.filter(|(_, sparse)| *sparse).map(|(layer, _)| layer).collect();
        if with.is_empty() {
            // An empty list is read as none given; no layer is a multiple of this step.
            config["interleave_moe_layer_step"] = json!(self.layers + 1);
        }
        config["moe_layers"] = json!(with);
        config["use_qk_norm"] = json!(find(|shape| shape.wiring.norms_rotated_qk).is_some());
        let growth = self.shapes().iter().find_map(|shape| shape.wiring.query_growth);
        config["attn_temperature_tuning"] = json!(growth.is_some());
        if let Some(growth) = growth {
            config["attn_scale"] = json!(growth.scale);
            config["floor_scale"] = json!(growth.tokens);
        }
    }

    /// Writes which layers are gated delta nets, and their widths.
    fn write_delta(&self, config: &mut Value) {
        config["attention_bias"] = json!(self.qkv_bias);
        config["attn_output_gate"] = json!(self.wiring.output_gate);
        config["partial_rotary_factor"] = json!(self.rotated_share());
        let kind = |layer| match self.layer(layer).mixer {
            Mixer::Recurrent(_) => "linear_attention",
            _ => "full_attention",
        };
        config["layer_types"] = (0..self.layers).map(kind).collect();
        let recurrent = self.shapes().iter().find_map(|shape| match shape.mixer {
            Mixer::Recurrent(recurrence) => Some(recurrence),
            _ => None,
        });
        if let Some(Recurrence::GatedDelta { key_heads, value_heads, key_dim, value_dim, taps }) = recurrent {
            config["linear_num_key_heads"] = json!(key_heads);
            config["linear_num_value_heads"] = json!(value_heads);
            config["linear_key_head_dim"] = json!(key_dim);
            config["linear_value_head_dim"] = json!(value_dim);
            config["linear_conv_kernel_dim"] = json!(taps);
        }
        config["mtp_num_hidden_layers"] = json!(self.mtp);
    }

    /// The layers without experts.
    fn dense_layers(&self) -> Vec<u64> {
        (0..self.layers).filter(|&layer| self.layer(layer).experts.is_none()).collect()
    }

    fn write_latent(&self, config: &mut Value) {
        let Some(latent) = self.latent() else { return };
        config["q_lora_rank"] = json!(latent.q_rank);
        config["kv_lora_rank"] = json!(latent.kv_rank);
        config["qk_rope_head_dim"] = json!(latent.rope_dim);
        config["qk_nope_head_dim"] = json!(latent.nope_dim);
        config["v_head_dim"] = json!(latent.v_dim);
        if self.architecture != Architecture::DeepSeekV2 {
            config["rope_interleave"] = json!(self.wiring.rotates_neighbours);
        }
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

    /// The rotated share of each head: a number whose product with the head's width, rounded down,
    /// is the number of rotated columns.
    fn rotated_share(&self) -> f64 {
        let (rotated, all) = (self.rotated_width() as f64, self.head_dim as f64);
        // Four digits, if they are enough to read the same number of columns back.
        let short = (rotated / all * 10000.0).round() / 10000.0;
        if (short * all) as u64 == self.rotated_width() { short } else { (rotated + 0.5) / all }
    }

    fn phi_config(&self) -> Value {
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
            "partial_rotary_factor": self.rotated_share(),
            "rope_theta": theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": false,
            "torch_dtype": torch_name(self.dtype),
        })
    }

    fn neox_config(&self) -> Value {
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
            "rotary_pct": self.rotated_share(),
            "rotary_emb_base": theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": torch_name(self.dtype),
        })
    }

    fn gptj_config(&self) -> Value {
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

    fn falcon_config(&self) -> Value {
        let (theta, scaling) = rotation(&self.positions);
        let parallel = self.is_parallel();
        // The older class has one KV head, or as many KV heads as query heads.
        let old =
            self.wiring.block != BlockOrder::Parallel && (self.kv_heads == 1 || self.kv_heads == self.heads);
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
                json!(if self.wiring.block == BlockOrder::Parallel { 2 } else { 1 });
        }
        config
    }

    fn write_gemma(&self, config: &mut Value) {
        config["attention_bias"] = json!(self.qkv_bias);
        config["query_pre_attn_scalar"] = json!(self.wiring.query_scalar.unwrap_or(self.head_dim));
        config["attn_logit_softcapping"] = json!(self.wiring.score_cap);
        config["final_logit_softcapping"] = json!(self.wiring.logit_cap);
        if let Some(theta) = self.wiring.window_theta {
            config["rope_local_base_freq"] = json!(theta);
        }
    }

    fn write_gemma3n(&self, config: &mut Value) {
        self.write_gemma(config);
        let wiring = &self.wiring;
        config["hidden_activation"] = json!(self.activation_name());
        config["hidden_size_per_layer_input"] = json!(wiring.layer_embedding);
        config["vocab_size_per_layer_input"] = json!(wiring.layer_embedding_tokens.unwrap_or(self.vocab));
        config["laurel_rank"] = json!(wiring.low_rank_residual);
        config["altup_num_inputs"] = json!(wiring.predicted_streams);
        let layers = || (0..self.layers).map(|layer| self.layer(layer));
        config["intermediate_size"] = layers().map(|layer| layer.intermediate).collect();
        let shared = layers().filter(|layer| layer.wiring.shares_kv).count();
        config["num_kv_shared_layers"] = json!(shared);
        let share = |cutoff: Option<f64>| cutoff.map_or(0.0, sparsity);
        config["activation_sparsity_pattern"] =
            layers().map(|layer| share(layer.wiring.gate_cutoff)).collect();
    }

    /// Writes which layers have a sliding window, for the families that can have one.
    fn write_window(&self, config: &mut Value) {
        let window = self.shapes().iter().find_map(|shape| shape.wiring.window);
        match self.architecture {
            Architecture::Qwen2 | Architecture::Qwen3 => {
                config["use_sliding_window"] = json!(window.is_some())
            }
            Architecture::Qwen3Moe if window.is_some() => config["use_sliding_window"] = json!(true),
            // Without the key these have a window.
            Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Gemma3n | Architecture::GptOss => {}
            Architecture::Llama4 => return,
            _ if window.is_none() => return,
            _ => {}
        }
        config["sliding_window"] = json!(window.map(|window| window.tokens));
        // The other classes have a list with the kind of each layer.
        let kind =
            |layer| if self.window_of(layer).is_some() { "sliding_attention" } else { "full_attention" };
        if !matches!(self.architecture, Architecture::Llama | Architecture::Mixtral | Architecture::Phi3) {
            config["layer_types"] = (0..self.layers).map(kind).collect();
        }
    }

    fn activation_name(&self) -> &'static str {
        match self.activation {
            Activation::SiluGated => "silu",
            Activation::GeluTanhGated => "gelu_pytorch_tanh",
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_new",
            Activation::ReluSquared => "relu2",
            Activation::Xielu => "xielu",
        }
    }
}

/// The base of the frequencies, and their scaling in the form of `rope_scaling`.
fn rotation(positions: &Positions) -> (f64, Option<Value>) {
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
            let all = scaling.mscale_all_dim;
            let mut scaling = json!({
                "attention_factor": scaling.attention,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_max_positions,
                "rope_type": "yarn",
                "truncate": scaling.truncate,
            });
            if all > 0.0 {
                scaling["mscale_all_dim"] = json!(all);
            }
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

/// The name of a format in `torch_dtype`. For a quantised format it is the one that the weights
/// were quantised from.
fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F16 => "float16",
        _ => "bfloat16",
    }
}
