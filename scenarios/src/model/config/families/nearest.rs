//! What to say about a model type that is not read: the nearest family, and what differs.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::wrappers::looks_multimodal;
use hwprofiles::nearest_name;

/// Model types that are not counted, each with the feature, and the nearest family.
const REFUSED: [(&str, &str, &str); 33] = [
    ("phi4_multimodal", "adapters for images and speech", "phi3"),
    ("zamba2", "layers that share one attention block", "granitemoehybrid"),
    ("zamba", "layers that share one attention block", "jamba"),
    ("mamba", "a model without attention", "jamba"),
    ("mamba2", "a model without attention", "granitemoehybrid"),
    ("falcon_mamba", "a model without attention", "jamba"),
    ("recurrent_gemma", "gated linear recurrences", "gemma2"),
    ("rwkv", "a model without attention", "qwen3_next"),
    ("minimax", "lightning attention", "qwen3_next"),
    ("minimax_text_01", "lightning attention", "qwen3_next"),
    ("minimax_m1", "lightning attention", "qwen3_next"),
    ("bailing_moe_linear", "lightning attention", "qwen3_next"),
    ("axk2", "norms with gates, and queries and gates in one matrix", "glm_moe_dsa"),
    ("dots3_note_text", "heads and ranks that differ between layers of latent attention", "glm_moe_dsa"),
    ("inkling_text", "relative positions, and convolutions behind projections", "qwen3_moe"),
    ("inkling2_text", "relative positions, and convolutions behind projections", "qwen3_moe"),
    ("zaya", "attention over compressed and convolved keys", "qwen3_moe"),
    ("apertus1p5_text", "an output projection for a part of the vocabulary", "apertus"),
    ("hrm_text", "layers that are computed several times", "llama"),
    ("jetmoe", "experts of attention", "mixtral"),
    ("doge", "masks that depend on values", "llama"),
    ("xlstm", "a model without attention", "qwen3_next"),
    ("gpt_neo", "a learned table of positions without rotation", "opt"),
    ("gpt_bigcode", "a learned table of positions without rotation", "opt"),
    ("codegen", "queries, keys and values in the order of several devices", "gptj"),
    ("mllama", "layers that attend to an image", "llama"),
    ("dbrx", "a norm in each expert's block and clipped q, k, v", "mixtral"),
    ("gpt2", "a learned table of positions without rotation", "opt"),
    ("bloom", "ALiBi", "falcon"),
    ("mpt", "ALiBi", "falcon"),
    ("bitnet", "ternary weights with norms inside sublayers", "llama"),
    ("diffllama", "differences of two attentions", "llama"),
    ("t5", "an encoder", "llama"),
];

/// Keys that say nothing about the shape of a model.
const SILENT: [&str; 16] = [
    "architectures",
    "auto_map",
    "model_type",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "hidden_act",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "quantization_config",
    "tie_word_embeddings",
];

/// The error for `model_type`, which is at `config`.
pub(crate) fn unknown_type(config: &DocumentSection<'_>, model_type: &str) -> ScenarioError {
    if let Some((_, feature, nearest)) = REFUSED.iter().find(|(name, ..)| *name == model_type) {
        let instead = format!("the nearest family that is counted is {nearest}");
        return config.unsupported("model_type", feature, &instead);
    }
    let names = FamilyDefaults::all().map(|family| family.model_type);
    let meant = nearest_name(model_type, names);
    if let Some(meant) = meant.filter(|_| config.get("hidden_size").is_none()) {
        return config.wrong("model_type", &format!("it is not known; did you mean {meant}?"));
    }
    if looks_multimodal(config) && config.get("hidden_size").is_none() {
        let wanted = format!("{model_type} seems to have its language model there: a mapping is wanted");
        return config.missing("text_config", &wanted);
    }
    let Some((family, others)) = nearest_by_keys(config) else {
        let known: Vec<_> = FamilyDefaults::all().map(|family| family.model_type).collect();
        return config.wrong("model_type", &format!("the supported model types are {}", known.join(", ")));
    };
    let differs = match others.is_empty() {
        true => "its keys are the same, so try that model_type".to_owned(),
        false => format!("which does not know the keys {}", others.join(", ")),
    };
    let meant = meant.map_or(String::new(), |meant| format!("did you mean {meant}? otherwise "));
    let wanted = format!("it is not known; {meant}the nearest family by its keys is {family}, {differs}");
    config.wrong("model_type", &wanted)
}

/// The family whose keys are most like those of the file, and up to five keys that it has not.
fn nearest_by_keys(config: &DocumentSection<'_>) -> Option<(&'static str, Vec<String>)> {
    let keys: Vec<&str> = config.keys().filter(|key| !SILENT.contains(key)).collect();
    if !keys.contains(&"hidden_size") {
        return None;
    }
    let score = |family: &&'static FamilyDefaults| {
        let own = family.class_defaults();
        let common = keys.iter().filter(|key| own.is_some_and(|own| own.contains_key(**key))).count();
        let all = keys.len() + own.map_or(0, serde_json::Map::len) - common;
        (common * 10_000).checked_div(all).unwrap_or(0)
    };
    let family =
        FamilyDefaults::all().filter(|family| family.class_defaults().is_some()).max_by_key(score)?;
    let known = |key: &&&str| !family.class_defaults().is_some_and(|own| own.contains_key(**key));
    let others = keys.iter().filter(known).filter(|key| !key.ends_with("_token_id")).take(5);
    Some((family.model_type, others.map(|key| (*key).to_owned()).collect()))
}
