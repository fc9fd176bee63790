//! Reads LFM2 and LFM3: short convolutions in most layers, attention in the others.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, need_count, texts_of_layers};
use crate::model::config::mixture::{has_experts, members, read_mixture};
use crate::model::config::readers::gated_delta::{check_recurrence, make_recurrent};
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::{MAX_CONTEXT, MAX_WIDTH};
use crate::model::recurrence::Recurrence;
use crate::model::sliding_window::SlidingWindow;
use crate::model::transformer::Model;

/// Reads it; returns the shape of each layer.
pub(crate) fn read_short_convolution(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    model.qk_norm = true;
    model.intermediate = network_width(config, model)?;
    model.wiring.norms_behind = Switch::Key("use_sandwich_norm", false).read(config)?;
    let bias = Switch::Key("attention_bias", false).read(config)?;
    (model.qkv_bias, model.out_bias) = (bias, bias);
    let sparse = if has_experts(config)? {
        let rules = MixtureRules {
            router_bias: Switch::Key("use_expert_bias", true),
            normalised: true,
            ..MixtureRules::NARROW
        };
        read_mixture(config, &rules, model)?
    } else {
        vec![]
    };
    let taps = config.count("conv_L_cache", 64)?.unwrap_or(3);
    let recurrence = Recurrence::ShortConvolution { channels: model.hidden, taps };
    check_recurrence(config, "hidden_size", recurrence)?;
    let mut layers = with_experts_in(model, &sparse);
    for (layer, kind) in layers.iter_mut().zip(kinds(config, model.layers)?) {
        match kind {
            "full_attention" => {}
            "sliding_attention" => {
                let tokens = need_count(config, &["sliding_window"], MAX_CONTEXT)?;
                layer.wiring.window = Some(SlidingWindow::new(tokens));
            }
            "conv" => make_recurrent(layer, recurrence),
            _ => {
                let instead = "conv, full_attention and sliding_attention are";
                return Err(config.unsupported("layer_types", "another layer", instead));
            }
        }
    }
    Ok(layers)
}

/// The kind of each layer.
fn kinds<'a>(config: &DocumentSection<'a>, layers: u64) -> Result<Vec<&'a str>, ScenarioError> {
    if let Some(kinds) = texts_of_layers(config, "layer_types", layers)? {
        return Ok(kinds);
    }
    let listed = members(config, "full_attn_idxs", layers)?;
    Ok((0..layers).map(|layer| if listed.contains(&layer) { "full_attention" } else { "conv" }).collect())
}

/// The network's width: two thirds of the written one, times a factor, rounded up to a multiple.
fn network_width(config: &DocumentSection<'_>, model: &Model) -> Result<u64, ScenarioError> {
    let key = if config.writes("block_ff_dim") { "block_ff_dim" } else { "intermediate_size" };
    let width = config.count(key, MAX_WIDTH)?.unwrap_or(model.intermediate);
    if !Switch::Key("block_auto_adjust_ff_dim", false).read(config)? {
        return Ok(width);
    }
    let factor = config.positive("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    let multiple = config.count("block_multiple_of", MAX_WIDTH)?.unwrap_or(256);
    let wide = ((2 * width / 3) as f64 * factor) as u64;
    let wide = wide.div_ceil(multiple).saturating_mul(multiple);
    match wide <= MAX_WIDTH {
        true => Ok(wide),
        false => {
            Err(config.wrong(key, &format!("it makes a network {wide} wide, at most {MAX_WIDTH} is allowed")))
        }
    }
}
