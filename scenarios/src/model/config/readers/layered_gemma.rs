//! Reads Gemma 3n and 4, whose layers differ in their heads, networks and caches.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Activation, Architecture, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, count_from_zero, counts_of_layers, need_count, texts_of_layers};
use crate::model::config::mixture::read_mixture;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;
use hwprofiles::statistics::normal_quantile;
use serde_json::Value;

/// Reads such a family; returns the shape of each layer.
pub(crate) fn read_layered_gemma(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    // It is the rotated part in layers without a window.
    let rotated = model.wiring.rotary_dim.take().map_or(1.0, |width| width as f64 / model.head_dim as f64);
    let fourth = family.architecture == Architecture::Gemma4;
    if config.get("use_bidirectional_attention").and_then(Value::as_str) == Some("all") {
        let feature = "attention to later tokens";
        return Err(config.unsupported("use_bidirectional_attention", feature, "null and vision are"));
    }
    read_model(config, fourth, model)?;
    let window = SlidingWindow::new(need_count(config, &["sliding_window"], MAX_CONTEXT)?);
    let windowed = windowed_layers(config, model.layers, if fourth { 6 } else { 5 })?;
    let widths = counts_of_layers(config, "intermediate_size", model.layers)?;
    let shared = count_from_zero(config, &["num_kv_shared_layers"])?;
    if shared >= model.layers && shared > 0 {
        let wanted = format!("fewer than num_hidden_layers, which is {}, are wanted", model.layers);
        return Err(config.wrong("num_kv_shared_layers", &wanted));
    }
    let shares = |layer: u64| layer >= model.layers - shared;
    let wide = Switch::Key("use_double_wide_mlp", false).read(config)?;
    let full = FullLayer::read(config, model)?;
    let cutoffs =
        if fourth { vec![None; model.layers as usize] } else { gate_cutoffs(config, model.layers)? };
    let mut layers = Vec::new();
    for (layer, windowed) in (0..model.layers).zip(windowed) {
        let mut shape = model.clone();
        match windowed {
            true => shape.wiring.window = Some(window),
            false if fourth => full.apply(&mut shape),
            false => {}
        }
        if let Some(width) = widths.as_ref().and_then(|widths| widths.get(layer as usize)) {
            shape.intermediate = *width;
        }
        if shares(layer) {
            shape.wiring.shares_kv = true;
            shape.wiring.keys_are_values = false;
            if wide {
                shape.intermediate = (2 * shape.intermediate).min(MAX_WIDTH);
            }
        }
        shape.wiring.gate_cutoff = cutoffs[layer as usize];
        shape.wiring.joins_streams = !fourth && layer + 1 == model.layers;
        apply_own_widths(config, layer, &mut shape)?;
        if fourth && !windowed {
            let width = (shape.head_dim as f64 * rotated) as u64;
            shape.wiring.rotary_dim = Some(width).filter(|&width| width < shape.head_dim);
        }
        layers.push(shape);
    }
    Ok(layers)
}

/// Reads what all layers have in common.
fn read_model(config: &DocumentSection<'_>, fourth: bool, model: &mut Model) -> Result<(), ScenarioError> {
    let bias = Switch::Key("attention_bias", false).read(config)?;
    (model.qkv_bias, model.out_bias) = (bias, bias);
    model.activation = Activation::GeluTanhGated;
    model.norm = Norm::Rms;
    model.qk_norm = true;
    model.wiring.scaled_embeddings = true;
    model.wiring.norms_behind = true;
    model.wiring.value_norm = true;
    model.wiring.layer_scale = fourth;
    // Scores are not scaled: the norms of q and k have weights for that.
    model.wiring.query_scalar = Some(1);
    model.wiring.logit_cap = config.positive("final_logit_softcapping")?;
    let own = count_from_zero(config, &["hidden_size_per_layer_input"])?;
    model.wiring.layer_embedding = Some(own).filter(|&width| width > 0 && width <= MAX_WIDTH);
    if own * model.layers > MAX_WIDTH {
        let wanted = format!("in all layers it makes {}, at most {MAX_WIDTH} is allowed", own * model.layers);
        return Err(config.wrong("hidden_size_per_layer_input", &wanted));
    }
    if !fourth {
        read_predicted_streams(config, model)?;
    }
    if Switch::Key("enable_moe_block", false).read(config)? {
        read_mixture(config, &MixtureRules { normalised: true, ..MixtureRules::NARROW }, model)?;
        // The dense network stays, and every token goes through it.
        if let Some(experts) = &mut model.experts {
            experts.shared = model.intermediate;
        }
        model.wiring.norms_beside = true;
    }
    Ok(())
}

/// Reads Gemma 3n's residual streams, of which the first is always the one that layers compute.
fn read_predicted_streams(config: &DocumentSection<'_>, model: &mut Model) -> Result<(), ScenarioError> {
    let wiring = &mut model.wiring;
    wiring.low_rank_residual = Some(need_count(config, &["laurel_rank"], MAX_WIDTH)?);
    let streams = need_count(config, &["altup_num_inputs"], 64)?;
    if streams == 1 {
        return Err(config.wrong("altup_num_inputs", "a whole number from 2 to 64 is wanted"));
    }
    wiring.predicted_streams = Some(streams);
    if count_from_zero(config, &["altup_active_idx"])? != 0 {
        return Err(config.unsupported("altup_active_idx", "another computed stream", "0 is"));
    }
    if !Switch::Key("altup_correct_scale", true).read(config)? {
        return Err(config.unsupported("altup_correct_scale", "unscaled streams", "true is"));
    }
    if wiring.layer_embedding.is_none() {
        return Err(config.missing("hidden_size_per_layer_input", "a whole number from 1 is wanted"));
    }
    let tokens = need_count(config, &["vocab_size_per_layer_input"], MAX_WIDTH)?;
    wiring.layer_embedding_tokens = Some(tokens).filter(|&tokens| tokens < model.vocab);
    Ok(())
}

/// For each layer of Gemma 3n the cutoff of its gates in standard deviations, from the share of
/// gates that it makes 0.
fn gate_cutoffs(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<Option<f64>>, ScenarioError> {
    const KEY: &str = "activation_sparsity_pattern";
    let shares: Vec<_> = match config.get(KEY) {
        // As in transformers, the first ten layers of a deep model have one.
        None => (0..layers).map(|layer| Some(if layer < 10 && layers > 10 { 0.95 } else { 0.0 })).collect(),
        Some(Value::Array(list)) => list.iter().map(Value::as_f64).collect(),
        Some(one) => vec![one.as_f64(); layers as usize],
    };
    let wanted = format!("a number from 0 to below 1 for each of {layers} layers is wanted");
    let is_share = |share: &Option<f64>| share.is_some_and(|share| (0.0..1.0).contains(&share));
    if shares.len() as u64 != layers || !shares.iter().all(is_share) {
        return Err(config.wrong(KEY, &wanted));
    }
    // Files in other formats have this number in f32.
    let cutoff = |share: f64| f64::from(normal_quantile(share) as f32);
    Ok(shares.into_iter().flatten().map(|share| (share > 0.0).then(|| cutoff(share))).collect())
}

/// What layers without a window have of their own in Gemma 4.
struct FullLayer {
    head_dim: u64,
    kv_heads: u64,
    keys_are_values: bool,
}

impl FullLayer {
    fn read(config: &DocumentSection<'_>, model: &Model) -> Result<Self, ScenarioError> {
        let keys_are_values = Switch::Key("attention_k_eq_v", false).read(config)?;
        let head_dim = config.count("global_head_dim", MAX_WIDTH)?.unwrap_or(model.head_dim);
        let own = config.count("num_global_key_value_heads", MAX_WIDTH)?.filter(|_| keys_are_values);
        let kv_heads = own.unwrap_or(model.kv_heads);
        if !model.heads.is_multiple_of(kv_heads) {
            let wanted = format!("a divisor of num_attention_heads, which is {}, is wanted", model.heads);
            return Err(config.wrong("num_global_key_value_heads", &wanted));
        }
        if model.heads * head_dim > MAX_WIDTH {
            let wanted = format!("all heads together are too wide, at most {MAX_WIDTH} is allowed");
            return Err(config.wrong("global_head_dim", &wanted));
        }
        Ok(Self { head_dim, kv_heads, keys_are_values })
    }

    fn apply(&self, shape: &mut Model) {
        shape.head_dim = self.head_dim;
        shape.kv_heads = self.kv_heads;
        shape.wiring.keys_are_values = self.keys_are_values;
    }
}

/// Applies the sizes that `per_layer_config` gives for one layer, as transformers 5 writes them.
fn apply_own_widths(
    config: &DocumentSection<'_>,
    layer: u64,
    shape: &mut Model,
) -> Result<(), ScenarioError> {
    const KEY: &str = "per_layer_config";
    let Some(own) = config.get(KEY).and_then(Value::as_object) else { return Ok(()) };
    let entry = own.iter().find(|(name, _)| name.parse() == Ok(layer)).map(|(_, entry)| entry);
    let Some(entry) = entry else { return Ok(()) };
    for (key, size) in [
        ("head_dim", &mut shape.head_dim),
        ("num_key_value_heads", &mut shape.kv_heads),
        ("intermediate_size", &mut shape.intermediate),
    ] {
        match entry.get(key).map(Value::as_u64) {
            None => {}
            Some(Some(own)) if (1..=MAX_WIDTH).contains(&own) => *size = own,
            Some(_) => return Err(config.wrong(KEY, &format!("{key} is a whole number above 0"))),
        }
    }
    match shape.heads.is_multiple_of(shape.kv_heads) && shape.heads * shape.head_dim <= MAX_WIDTH {
        true => Ok(()),
        false => Err(config.wrong(KEY, &format!("the heads of layer {layer} do not fit together"))),
    }
}

/// For each layer whether it has a window; by default every `every`-th has none, and the last one.
fn windowed_layers(
    config: &DocumentSection<'_>,
    layers: u64,
    every: u64,
) -> Result<Vec<bool>, ScenarioError> {
    let Some(kinds) = texts_of_layers(config, "layer_types", layers)? else {
        return Ok((1..=layers).map(|layer| !layer.is_multiple_of(every) && layer < layers).collect());
    };
    let windowed = |kind: &str| match kind {
        "sliding_attention" => Ok(true),
        "full_attention" => Ok(false),
        _ => Err(config.unsupported(
            "layer_types",
            "another layer",
            "full_attention and sliding_attention are",
        )),
    };
    kinds.into_iter().map(windowed).collect()
}
