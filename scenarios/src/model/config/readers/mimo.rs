//! Reads MiMo-V2-Flash.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, count_of, counts_of_layers, need_count, texts_of_layers};
use crate::model::config::mixture::read_mixture;
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;

/// Reads it; returns the shape of each layer.
pub(crate) fn read_mimo(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    model.qkv_bias = Switch::Key("attention_bias", false).read(config)?;
    let value_dim = config.count("v_head_dim", MAX_WIDTH)?;
    model.wiring.value_dim = value_dim.filter(|&width| width != model.head_dim);
    let rules = MixtureRules { router_bias: Switch::Yes, normalised: true, ..MixtureRules::NARROW };
    let sparse = read_mixture(config, &rules, model)?;
    let tokens = need_count(config, &["sliding_window", "sliding_window_size"], MAX_CONTEXT)?;
    let window = Some(SlidingWindow::new(tokens)).filter(|window| window.tokens < model.max_positions);
    let kv_heads = count_of(config, &["swa_num_key_value_heads"], MAX_WIDTH)?;
    let kv_heads = kv_heads.unwrap_or(2 * model.kv_heads);
    if !model.heads.is_multiple_of(kv_heads) {
        let wanted = format!("a divisor of num_attention_heads, which is {}, is wanted", model.heads);
        return Err(config.wrong("swa_num_key_value_heads", &wanted));
    }
    for (key, value) in [("swa_head_dim", model.head_dim), ("swa_v_head_dim", model.value_dim())] {
        if config.count(key, MAX_WIDTH)?.is_some_and(|own| own != value) {
            let instead = format!("it must be {value}, as in the other layers");
            return Err(config.unsupported(key, "another width in layers with a window", &instead));
        }
    }
    if model.heads * model.value_dim() > MAX_WIDTH {
        return Err(config.wrong("v_head_dim", &format!("all heads together exceed {MAX_WIDTH}")));
    }
    let sinks = Switch::Key("add_swa_attention_sink_bias", true).read(config)?;
    let full_sinks = Switch::Key("add_full_attention_sink_bias", false).read(config)?;
    let windowed = windowed_layers(config, model.layers)?;
    let mut layers = with_experts_in(model, &sparse);
    for (layer, windowed) in layers.iter_mut().zip(windowed) {
        layer.wiring.sinks = if windowed { sinks } else { full_sinks };
        if windowed {
            layer.wiring.window = window;
            layer.kv_heads = kv_heads;
        }
    }
    Ok(layers)
}

/// For each layer whether it has a window.
fn windowed_layers(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<bool>, ScenarioError> {
    if let Some(pattern) = counts_of_layers(config, "hybrid_layer_pattern", layers)? {
        return Ok(pattern.into_iter().map(|windowed| windowed == 1).collect());
    }
    match texts_of_layers(config, "layer_types", layers)? {
        Some(kinds) => Ok(kinds.into_iter().map(|kind| kind == "sliding_attention").collect()),
        None => Err(config.missing("hybrid_layer_pattern", "a list of 0 or 1 for each layer is wanted")),
    }
}
