//! Reads LFM2: short convolutions in most layers, attention in the others.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::keys::{Switch, texts_of_layers};
use crate::model::config::mixture::{MixtureRules, has_experts, members, read_mixture};
use crate::model::config::readers::gated_delta::{check_recurrence, make_recurrent};
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::recurrence::Recurrence;
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
    let attends = match texts_of_layers(config, "layer_types", model.layers)? {
        Some(kinds) => kinds.into_iter().map(|kind| kind == "full_attention").collect::<Vec<_>>(),
        None => {
            let listed = members(config, "full_attn_idxs", model.layers)?;
            (0..model.layers).map(|layer| listed.contains(&layer)).collect()
        }
    };
    let mut layers = with_experts_in(model, &sparse);
    for (layer, attends) in layers.iter_mut().zip(attends) {
        if !attends {
            make_recurrent(layer, recurrence);
        }
    }
    Ok(layers)
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
    let wide = wide.div_ceil(multiple) * multiple;
    match wide <= MAX_WIDTH {
        true => Ok(wide),
        false => {
            Err(config.wrong(key, &format!("it makes a network {wide} wide, at most {MAX_WIDTH} is allowed")))
        }
    }
}
