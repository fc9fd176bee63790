//! Windows, and what Gemma 2 and 3 have besides, as a `config.json`.

use crate::model::transformer::{Architecture, Model};
use serde_json::{Value, json};

impl Model {
    pub(crate) fn write_gemma(&self, config: &mut Value) {
        config["attention_bias"] = json!(self.qkv_bias);
        config["query_pre_attn_scalar"] = json!(self.wiring.query_scalar.unwrap_or(self.head_dim));
        config["attn_logit_softcapping"] = json!(self.wiring.score_cap);
        config["final_logit_softcapping"] = json!(self.wiring.logit_cap);
        if let Some(theta) = self.wiring.window_theta {
            config["rope_local_base_freq"] = json!(theta);
        }
    }

    /// What says which layers have a window, in families that can have one.
    pub(crate) fn write_window(&self, config: &mut Value) {
        let window = self.wiring.window;
        match self.architecture {
            Architecture::Qwen2 | Architecture::Qwen3 => {
                config["use_sliding_window"] = json!(window.is_some())
            }
            Architecture::Qwen3Moe if window.is_some() => config["use_sliding_window"] = json!(true),
            Architecture::Gemma2 | Architecture::Gemma3 => {}
            _ if window.is_none() => return,
            _ => {}
        }
        config["sliding_window"] = json!(window.map(|window| window.tokens));
        // Classes in which each layer is told what it is.
        let kind =
            |layer| if self.window_of(layer).is_some() { "sliding_attention" } else { "full_attention" };
        if !matches!(self.architecture, Architecture::Llama | Architecture::Mixtral | Architecture::Phi3) {
            config["layer_types"] = (0..self.layers).map(kind).collect();
        }
    }
}
