//! Reads Llama 4.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, counts_of_layers, need_count, texts_of_layers};
use crate::model::config::mixture::read_mixture;
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;
use crate::model::wiring::QueryGrowth;
use serde_json::Value;

/// Reads it; returns the shape of each layer.
pub(crate) fn read_llama4(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    model.wiring.rotates_neighbours = true;
    let bias = Switch::Key("attention_bias", false).read(config)?;
    (model.qkv_bias, model.out_bias) = (bias, bias);
    let sparse = read_mixture(config, &MixtureRules::WIDE, model)?;
    // Every token goes to one more expert of the same width.
    if let Some(experts) = &mut model.experts {
        experts.shared = experts.intermediate;
    }
    model.intermediate = need_count(config, &["intermediate_size_mlp"], MAX_WIDTH)?;
    let chunk = config.count("attention_chunk_size", MAX_CONTEXT)?;
    let window = chunk
        .filter(|&tokens| tokens < model.max_positions)
        .map(|tokens| SlidingWindow { tokens, chunked: true });
    let rotated = rotated_layers(config, model.layers)?;
    let chunked = chunked_layers(config, model.layers)?.unwrap_or_else(|| rotated.clone());
    let norms = Switch::Key("use_qk_norm", true).read(config)?;
    let growth = query_growth(config)?;
    let mut layers = with_experts_in(model, &sparse);
    for (layer, (rotated, chunked)) in layers.iter_mut().zip(rotated.into_iter().zip(chunked)) {
        layer.wiring.window = window.filter(|_| chunked);
        layer.wiring.unrotated = !rotated;
        layer.wiring.norms_rotated_qk = norms && rotated;
        layer.wiring.query_growth = growth.filter(|_| !rotated);
    }
    Ok(layers)
}

/// How queries grow in layers without rotation. The switch is written as a number too.
fn query_growth(config: &DocumentSection<'_>) -> Result<Option<QueryGrowth>, ScenarioError> {
    let off = match config.get("attn_temperature_tuning") {
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        _ => !Switch::Key("attn_temperature_tuning", true).read(config)?,
    };
    let scale = config.positive("attn_scale")?.unwrap_or(0.1);
    let tokens = config.positive("floor_scale")?.unwrap_or(8192.0);
    Ok(Some(QueryGrowth { scale, tokens }).filter(|_| !off))
}

/// For each layer whether its context is cut into chunks, where the file says so.
fn chunked_layers(config: &DocumentSection<'_>, layers: u64) -> Result<Option<Vec<bool>>, ScenarioError> {
    if let Some(kinds) = texts_of_layers(config, "layer_types", layers)? {
        let chunked = |kind: &str| match kind {
            "chunked_attention" => Ok(true),
            "full_attention" => Ok(false),
            _ => Err(config.unsupported(
                "layer_types",
                "another layer",
                "chunked_attention and full_attention are",
            )),
        };
        return kinds.into_iter().map(chunked).collect::<Result<_, _>>().map(Some);
    }
    Ok(None)
}

/// For each layer whether it rotates q and k.
fn rotated_layers(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<bool>, ScenarioError> {
    // An empty list means the default.
    let listed =
        config.get("no_rope_layers").is_some_and(|list| list.as_array().is_some_and(|l| !l.is_empty()));
    if listed && let Some(rotates) = counts_of_layers(config, "no_rope_layers", layers)? {
        return Ok(rotates.into_iter().map(|rotates| rotates > 0).collect());
    }
    let every = config.count("no_rope_layer_interval", 1 << 16)?.unwrap_or(4);
    Ok((0..layers).map(|layer| !(layer + 1).is_multiple_of(every)).collect())
}
