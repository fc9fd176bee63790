//! Reads families whose layers have Mamba, attention or both, and behind them a network or experts:
//! Granite 4, Bamba, Jamba, Falcon-H1.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::Architecture;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, count_from_zero, count_of, need_count, texts_of_layers};
use crate::model::config::mixture::{has_experts, members, read_mixture};
use crate::model::config::readers::gated_delta::{check_recurrence, make_recurrent};
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;

/// Reads such a family; returns the shape of each layer.
pub(crate) fn read_mamba(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    let bias = Switch::Key("attention_bias", false).read(config)?;
    (model.qkv_bias, model.out_bias) = (bias, bias);
    let mut sparse = vec![];
    if has_experts(config)? && count_from_zero(config, &["num_experts"])? != 1 {
        sparse = read_mixture(config, &MixtureRules::WIDE, model)?;
    } else if family.model_type == "granitemoehybrid" {
        // Without experts the shared one is the network.
        model.intermediate = need_count(config, &["shared_intermediate_size"], MAX_WIDTH)?;
    }
    let recurrence = match family.architecture {
        Architecture::Jamba => read_first(config, model)?,
        _ => read_second(config, model)?,
    };
    check_recurrence(config, "mamba_expand", recurrence)?;
    if family.model_type == "falcon_h1" {
        return both_mixers(config, recurrence, model);
    }
    let attends = attending_layers(config, model)?;
    let mut layers = with_experts_in(model, &sparse);
    for (layer, attends) in layers.iter_mut().zip(attends) {
        if !attends {
            make_recurrent(layer, recurrence);
        }
    }
    Ok(layers)
}

/// The layers of Falcon-H1, which have attention beside Mamba-2. Each becomes two layers here:
/// attention alone, and Mamba-2 with the network.
fn both_mixers(
    config: &DocumentSection<'_>,
    recurrence: Recurrence,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    model.ffn_bias = Switch::Key("mlp_bias", false).read(config)?;
    model.layers *= 2;
    let layer = |layer: u64| {
        let mut shape = model.clone();
        match layer % 2 {
            0 => shape.wiring.block = BlockOrder::MixerOnly,
            _ => make_recurrent(&mut shape, recurrence),
        }
        shape
    };
    Ok((0..model.layers).map(layer).collect())
}

/// Mamba-2.
fn read_second(config: &DocumentSection<'_>, model: &Model) -> Result<Recurrence, ScenarioError> {
    let inner = match count_of(config, &["mamba_d_ssm"], MAX_WIDTH)? {
        Some(inner) => inner,
        None => need_count(config, &["mamba_expand"], 64)? * model.hidden,
    };
    let heads = need_count(config, &["mamba_n_heads"], MAX_WIDTH)?;
    let head_dim = match config.get("mamba_d_head") {
        Some(value) if value.is_number() => need_count(config, &["mamba_d_head"], MAX_WIDTH)?,
        _ => inner / heads,
    };
    if heads * head_dim != inner {
        let wanted = format!(
            "with a head's width of {head_dim} it must make mamba_d_ssm, or mamba_expand · hidden_size, which is {inner}"
        );
        return Err(config.wrong("mamba_n_heads", &wanted));
    }
    Ok(Recurrence::Mamba2 {
        heads,
        head_dim,
        groups: need_count(config, &["mamba_n_groups"], MAX_WIDTH)?,
        state: need_count(config, &["mamba_d_state"], MAX_WIDTH)?,
        taps: need_count(config, &["mamba_d_conv"], 64)?,
    })
}

/// Mamba.
fn read_first(config: &DocumentSection<'_>, model: &Model) -> Result<Recurrence, ScenarioError> {
    let rank = match config.get("mamba_dt_rank") {
        Some(value) if value.is_number() => need_count(config, &["mamba_dt_rank"], MAX_WIDTH)?,
        // "auto"
        _ => model.hidden.div_ceil(16),
    };
    Ok(Recurrence::Mamba1 {
        channels: need_count(config, &["mamba_expand"], 64)? * model.hidden,
        state: need_count(config, &["mamba_d_state"], MAX_WIDTH)?,
        step_rank: rank,
        taps: need_count(config, &["mamba_d_conv"], 64)?,
    })
}

/// For each layer whether it has attention.
fn attending_layers(config: &DocumentSection<'_>, model: &Model) -> Result<Vec<bool>, ScenarioError> {
    for key in ["layer_types", "layers_block_type"] {
        let Some(kinds) = texts_of_layers(config, key, model.layers)? else { continue };
        let attends = |kind: &str| match kind {
            "attention" | "full_attention" => Ok(true),
            "mamba" | "linear_attention" => Ok(false),
            _ => Err(config.unsupported(key, "another layer", "mamba and attention are")),
        };
        return kinds.into_iter().map(attends).collect();
    }
    if config.get("attn_layer_period").is_some() {
        let period = need_count(config, &["attn_layer_period"], 1 << 16)?;
        let offset = count_from_zero(config, &["attn_layer_offset"])?;
        return Ok((0..model.layers).map(|layer| layer % period == offset % period).collect());
    }
    let listed = members(config, "attn_layer_indices", model.layers)?;
    Ok((0..model.layers).map(|layer| listed.contains(&layer)).collect())
}
