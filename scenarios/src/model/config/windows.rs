//! Reads sliding windows from a `config.json`.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::{FamilyDefaults, FamilyReader};
use crate::model::config::keys::{count_from_zero, need_count, texts_of_layers};
use crate::model::config::sizes::MAX_CONTEXT;
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;
use serde_json::Value;

/// Reads the window of each of the model's layers; empty if no layer has one, or if no context is
/// longer than the window.
pub(crate) fn read_windows(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &Model,
) -> Result<Vec<Option<SlidingWindow>>, ScenarioError> {
    use FamilyReader::{Decoder, Gpt, Llama, Opt};
    // The other families read their windows themselves, or have none.
    if !matches!(family.reader, Decoder(_) | Gpt | Llama | Opt) {
        return Ok(vec![]);
    }
    let tokens = window_tokens(config, family)?;
    let windowed = match layer_types(config, model)? {
        Some(types) => types,
        None => (0..model.layers)
            .map(
                |layer| Ok(tokens.is_some() && has_window_by_default(config, family, (layer, model.layers))?),
            )
            .collect::<Result<_, _>>()?,
    };
    if !windowed.contains(&true) {
        return Ok(vec![]);
    }
    let Some(tokens) = tokens else {
        let instead = "without a sliding_window every layer attends to the whole context";
        return Err(config.unsupported("layer_types", "a layer that is not full_attention", instead));
    };
    // Gemma 3's layers with a window have a separate rotation, even if no context is longer.
    if tokens >= model.max_positions && model.wiring.window_theta.is_none() {
        return Ok(vec![]);
    }
    let window = |windowed: bool| windowed.then(|| SlidingWindow::new(tokens));
    Ok(windowed.into_iter().map(window).collect())
}

/// The window's length in tokens, for classes that can have one.
fn window_tokens(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
) -> Result<Option<u64>, ScenarioError> {
    const KEY: &str = "sliding_window";
    let default = match family.model_type {
        "llama" | "gemma" => return Ok(None),
        "mixtral" | "phi3" => None,
        "gpt_oss" => Some(128),
        "qwen2_moe" | "smollm3" if !config.flag("use_sliding_window")?.unwrap_or(false) => return Ok(None),
        _ if !family.has_own_defaults() => None,
        // In these classes an absent key means 4096, and null means no window.
        "mistral" | "gemma2" | "gemma3_text" => Some(4096),
        _ if !config.flag("use_sliding_window")?.unwrap_or(false) => return Ok(None),
        _ => Some(4096),
    };
    Ok(config.count(KEY, MAX_CONTEXT)?.or(default.filter(|_| !config.has(KEY))))
}

/// Whether each layer has a window, if the file lists the kind of each layer.
fn layer_types(config: &DocumentSection<'_>, model: &Model) -> Result<Option<Vec<bool>>, ScenarioError> {
    const KEY: &str = "layer_types";
    let Some(texts) = texts_of_layers(config, KEY, model.layers)? else { return Ok(None) };
    let windowed = |kind: &str| match kind {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        _ => Err(config.unsupported(KEY, "another layer", "full_attention and sliding_attention are")),
    };
    texts.into_iter().map(windowed).collect::<Result<_, _>>().map(Some)
}

/// Whether `layer` of `layers` has a window, if the file does not list the kind of each layer.
fn has_window_by_default(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    (layer, layers): (u64, u64),
) -> Result<bool, ScenarioError> {
    let all_but_every = |every: u64| !(layer + 1).is_multiple_of(every);
    match family.model_type {
        "mistral" | "mixtral" | "phi3" | "ministral" | "starcoder2" | "phimoe" => Ok(true),
        "cohere2_moe" => {
            // Dense layers in front have a pattern of their own; the other layers begin anew.
            let dense = count_from_zero(config, &["first_k_dense_replace"])?;
            let (key, place) = match layer.checked_sub(dense) {
                Some(place) => ("sliding_window_pattern", place),
                None => ("prefix_dense_sliding_window_pattern", layer),
            };
            Ok(!(place + 1).is_multiple_of(need_count(config, &[key], MAX_CONTEXT)?))
        }
        "cohere2" | "exaone4" | "exaone_moe" | "olmo3" => {
            // EXAONE writes it as a text with a letter for each layer of the pattern.
            let letters = config.get("sliding_window_pattern").and_then(Value::as_str).map(str::len);
            let every = match letters {
                Some(letters) => letters as u64,
                None => config.count("sliding_window_pattern", MAX_CONTEXT)?.unwrap_or(4),
            };
            Ok(all_but_every(every.max(1)))
        }
        "afmoe" => Ok(all_but_every(config.count("global_attn_every_n_layers", MAX_CONTEXT)?.unwrap_or(4))),
        "cwm" | "granite_swa" | "granitemoe_swa" => Ok(!layer.is_multiple_of(4)),
        "vaultgemma" => Ok(all_but_every(2)),
        "laguna" | "mellum" | "step3p5" => Ok(false),
        // Every fourth layer from the last one back sees everything.
        "muse_glimmer_text" | "muse_spark_text" => Ok(!(layers - 1 - layer).is_multiple_of(4)),
        "gemma2" | "gpt_oss" => Ok(all_but_every(2)),
        "gemma3_text" => Ok(all_but_every(config.count("sliding_window_pattern", MAX_CONTEXT)?.unwrap_or(6))),
        // All layers from this one on have a window.
        _ => match config.get("max_window_layers").map(Value::as_u64) {
            None => Ok(layer >= 28),
            Some(Some(first)) => Ok(layer >= first),
            Some(None) => Err(config.wrong("max_window_layers", "a whole number from 0 is wanted")),
        },
    }
}
