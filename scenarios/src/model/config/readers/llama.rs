//! Reads Llama, its close relatives and OPT.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Architecture, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::keys::Switch;
use crate::model::config::mixture::{MixtureRules, experts_key, read_mixture};
use crate::model::config::readers::gemma::read_gemma;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_WIDTH, plain_activation};
use crate::model::positions::Positions;
use crate::model::transformer::Model;

/// Reads what Llama and the families derived from it add to the sizes; returns the shape of each
/// layer, without windows.
pub(crate) fn read_llama(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    match family.architecture {
        Architecture::Gemma | Architecture::Gemma2 | Architecture::Gemma3 => {
            read_gemma(config, family, model)?;
        }
        _ => match config.text("hidden_act")?.unwrap_or(family.activation) {
            "silu" | "swish" => {}
            _ => return Err(config.unsupported("hidden_act", "another gate than SiLU", "use silu")),
        },
    }
    if !model.head_dim.is_multiple_of(2) {
        let key = if config.get("head_dim").is_some() { "head_dim" } else { "num_attention_heads" };
        let wanted = format!("the head's width is {}: rotary positions need an even one", model.head_dim);
        return Err(config.wrong(key, &wanted));
    }
    read_rotary(config, family, model)?;
    let biased = family.architecture == Architecture::GptOss;
    let attention_bias = config.flag("attention_bias")?.unwrap_or(biased);
    match family.model_type {
        "gemma" | "gemma2" => (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias),
        "llama" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.ffn_bias = config.flag("mlp_bias")?.unwrap_or(false);
        }
        "qwen2" => model.qkv_bias = true,
        "gpt_oss" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.ffn_bias = true;
            model.wiring.sinks = true;
            model.wiring.gate_limit = Some(config.positive("swiglu_limit")?.unwrap_or(7.0));
            if config.positive("swiglu_alpha")?.is_some_and(|alpha| alpha != 1.702) {
                return Err(config.unsupported("swiglu_alpha", "another slope of the gate", "only 1.702 is"));
            }
        }
        "qwen3" | "qwen3_moe" | "gemma3_text" => {
            (model.qkv_bias, model.out_bias) = (attention_bias, attention_bias);
            model.qk_norm = true;
        }
        _ => {}
    }
    let sparse = match family.architecture {
        Architecture::Mixtral | Architecture::GptOss => read_mixture(config, &MixtureRules::WIDE, model)?,
        Architecture::Qwen3Moe => read_mixture(config, &MixtureRules::NARROW, model)?,
        _ => refuse_experts(config)?,
    };
    // These families have none, whatever a key says.
    if let Some(experts) = &mut model.experts {
        experts.shared = 0;
    }
    Ok(with_experts_in(model, &sparse))
}

/// The shapes of a model's layers, with experts in those that `sparse` says; in all if it is empty.
pub(crate) fn with_experts_in(model: &Model, sparse: &[bool]) -> Vec<Model> {
    let layer = |layer: u64| {
        let mut shape = model.clone();
        if sparse.get(layer as usize) == Some(&false) {
            shape.experts = None;
        }
        shape
    };
    (0..model.layers).map(layer).collect()
}

/// Refuses keys of experts in a family without them.
pub(crate) fn refuse_experts(config: &DocumentSection<'_>) -> Result<Vec<bool>, ScenarioError> {
    match experts_key(config) {
        None => Ok(vec![]),
        Some(key) => {
            let instead = "mixtral, qwen3_moe, glm4_moe, deepseek_v3 and others have experts";
            Err(config.unsupported(key, "a mixture of experts in this model type", instead))
        }
    }
}

/// Reads what OPT adds to the sizes.
pub(crate) fn read_opt(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<(), ScenarioError> {
    for (key, allowed, feature, instead) in [
        ("do_layer_norm_before", true, "a norm behind each sublayer", "only norms in front are (true)"),
        ("_remove_final_layer_norm", false, "a missing final norm", "only false is"),
        ("layer_norm_elementwise_affine", true, "a norm without weights", "only true is"),
    ] {
        if config.flag(key)?.unwrap_or(allowed) != allowed {
            return Err(config.unsupported(key, feature, instead));
        }
    }
    if config.count("word_embed_proj_dim", MAX_WIDTH)?.is_some_and(|width| width != model.hidden) {
        let instead = format!("it must equal hidden_size, which is {}", model.hidden);
        return Err(config.unsupported("word_embed_proj_dim", "a projection of the embeddings", &instead));
    }
    model.activation = plain_activation(config, family)?;
    let bias = Switch::Key("enable_bias", true).read(config)?;
    (model.qkv_bias, model.out_bias, model.ffn_bias) = (bias, bias, bias);
    model.norm = Norm::Layer;
    model.norm_eps = 1e-5;
    model.positions = Positions::Learned { offset: 2 };
    Ok(())
}
