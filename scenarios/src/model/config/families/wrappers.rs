//! Files of multimodal models, which have the language model in a mapping of its own.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use serde_json::Value;

/// Where the language model is.
const PLACES: [&str; 5] =
    ["text_config", "llm_config", "language_config", "thinker_config.text_config", "thinker_config"];

/// Model types that have such a mapping, with the language model's type where it says none.
const WRAPPERS: [(&str, &str); 41] = [
    ("gemma3", "gemma3_text"),
    ("gemma3n", "gemma3n_text"),
    ("gemma4", "gemma4_text"),
    ("gemma4_unified", "gemma4_unified_text"),
    ("llama4", "llama4_text"),
    ("qwen3_5", "qwen3_5_text"),
    ("qwen3_5_moe", "qwen3_5_moe_text"),
    ("qwen4_exp", "qwen4_exp_text"),
    ("qwen3_vl", "qwen3_vl_text"),
    ("qwen3_vl_moe", "qwen3_vl_moe_text"),
    ("qwen3_omni_moe", "qwen3_omni_moe_text"),
    ("qwen2_5_omni", "qwen2_5_omni_text"),
    ("qwen2_5_vl", "qwen2_5_vl_text"),
    ("qwen2_vl", "qwen2_vl_text"),
    ("kimi_k25", "kimi_k2"),
    ("kimi_k3", "kimi_linear"),
    ("kimi_vl", "deepseek_v3"),
    ("mistral3", "mistral"),
    ("pixtral", "mistral"),
    ("glm4v", "glm4v_text"),
    ("glm4v_moe", "glm4v_moe_text"),
    ("glm46v", "glm46v_text"),
    ("glm_ocr", "glm_ocr_text"),
    ("minimax_m3_vl", "minimax_m3_vl_text"),
    ("ernie4_5_vl_moe", "ernie4_5_moe"),
    ("internvl", "qwen2"),
    ("internvl_chat", "qwen2"),
    ("deepseek_vl_v2", "deepseek_v2"),
    ("deepseek_ocr", "deepseek_v2"),
    ("aya_vision", "cohere2"),
    ("cohere2_vision", "cohere2"),
    ("lfm2_vl", "lfm2"),
    ("llava", "llama"),
    ("llava_next", "llama"),
    ("llava_onevision", "qwen2"),
    ("idefics3", "llama"),
    ("smolvlm", "llama"),
    ("paligemma", "gemma"),
    ("ovis2", "qwen2"),
    ("voxtral", "llama"),
    ("granite_speech", "granite"),
];

/// The language model's mapping and its type; `None` if the file is that of a language model.
///
/// # Errors
/// The model type has such a mapping, and the file has not.
pub(crate) fn language_model<'a>(
    config: &DocumentSection<'a>,
    model_type: &'a str,
) -> Result<Option<(DocumentSection<'a>, &'a str)>, ScenarioError> {
    let wrapper = WRAPPERS.into_iter().find(|(name, _)| *name == model_type);
    // Some types are those of a flat file too.
    let is_family = FamilyDefaults::find(model_type).is_some();
    for place in PLACES {
        let first = place.split('.').next().unwrap_or(place);
        let inner = config.get(first).filter(|value| value.is_object());
        if inner.is_none() || (is_family && wrapper.is_none()) {
            continue;
        }
        let Some(section) = config.section(place)? else { continue };
        let own = section.text("model_type")?;
        // A mapping of several models is not itself a language model.
        if own.is_none() && section.get("hidden_size").is_none() && wrapper.is_none() {
            continue;
        }
        if let Some(found) = own.or(wrapper.map(|(_, text)| text)) {
            return Ok(Some((section, found)));
        }
    }
    match wrapper {
        Some(_) if !is_family && config.get("hidden_size").is_none() => {
            let wanted = format!("{model_type} has its language model there: a mapping is wanted");
            Err(config.missing("text_config", &wanted))
        }
        // Old files of some types have all keys at the top.
        Some((_, text)) if !is_family => Ok(Some((*config, text))),
        _ => Ok(None),
    }
}

/// Whether a model type names several models' file, though this version does not know it.
pub(crate) fn looks_multimodal(config: &DocumentSection<'_>) -> bool {
    let classes = config.get("architectures").and_then(Value::as_array);
    let mut names = classes.into_iter().flatten().filter_map(Value::as_str);
    names.any(|name| name.ends_with("ForConditionalGeneration"))
}
