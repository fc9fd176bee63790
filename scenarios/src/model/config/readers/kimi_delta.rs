//! Reads Kimi-Linear, Kimi-K3, Ling 2.5 and GLM-5-Next: Kimi delta attention in most layers, latent
//! attention in others.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, count_from_zero, count_of, need_count, texts_of_layers};
use crate::model::config::mixture::{has_experts, read_mixture};
use crate::model::config::readers::gated_delta::{check_recurrence, make_recurrent};
use crate::model::config::readers::latent::{read_index, read_latent};
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::mixer::Mixer;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;
use serde_json::Value;

/// Reads such a family; returns the shape of each layer.
pub(crate) fn read_kimi_delta(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    model.mixer = Mixer::Latent(read_latent(config, model)?);
    read_rotary(config, family, model)?;
    model.wiring.output_gate = Switch::Key("mla_use_output_gate", false).read(config)?;
    let sparse = if has_experts(config)? {
        let rules = MixtureRules { router_bias: Switch::Yes, normalised: true, ..MixtureRules::NARROW };
        read_mixture(config, &rules, model)?
    } else {
        vec![]
    };
    let latent = config.count("routed_expert_hidden_size", MAX_WIDTH)?;
    if let Some(experts) = &mut model.experts {
        experts.latent = latent;
    }
    model.mtp = count_from_zero(config, &["num_nextn_predict_layers"])?;
    model.wiring.residual_streams = config.count("hc_mult", 64)?;
    let recurrence = read_recurrence(config, family)?;
    let mut layers = with_experts_in(model, &sparse);
    for (layer, attends) in layers.iter_mut().zip(attending_layers(config, model.layers)?) {
        if !attends {
            make_recurrent(layer, recurrence);
        } else if config.get("index_n_heads").is_some() {
            layer.index = Some(read_index(config)?);
        }
    }
    Ok(layers)
}

/// Reads the widths of the delta attention, in its own mapping or beside the other keys.
fn read_recurrence(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
) -> Result<Recurrence, ScenarioError> {
    let ling = family.model_type == "bailing_hybrid";
    let inner = config.section("linear_attn_config")?;
    let at = inner.as_ref().unwrap_or(config);
    let recurrence = Recurrence::KimiDelta {
        heads: need_count(at, &["num_heads", "linear_num_heads"], MAX_WIDTH)?,
        head_dim: match &inner {
            Some(inner) => need_count(inner, &["head_dim"], MAX_WIDTH)?,
            None => need_count(config, &["linear_head_dim"], MAX_WIDTH)?,
        },
        taps: count_of(at, &["short_conv_kernel_size", "linear_conv_kernel_dim"], 64)?.unwrap_or(4),
        full_gate: at.flag("use_full_rank_gate")?.unwrap_or(ling),
        full_decay: ling,
    };
    check_recurrence(at, "num_heads", recurrence)?;
    Ok(recurrence)
}

/// For each layer whether it has latent attention.
fn attending_layers(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<bool>, ScenarioError> {
    let Some(inner) = config.section("linear_attn_config")? else {
        let Some(kinds) = texts_of_layers(config, "layer_types", layers)? else {
            let wanted = "a mapping with kda_layers and full_attn_layers is wanted";
            return Err(config.missing("linear_attn_config", wanted));
        };
        return Ok(kinds.into_iter().map(|kind| kind != "linear_attention").collect());
    };
    // Layers are counted from 1 there.
    let list = |key: &str| -> Result<Vec<u64>, ScenarioError> {
        let wanted = format!("a list of layers from 1 to {layers} is wanted");
        let value = inner.get(key).ok_or_else(|| inner.missing(key, &wanted))?;
        let layer = |value: &Value| value.as_u64().filter(|layer| (1..=layers).contains(layer));
        let list = value.as_array().and_then(|list| list.iter().map(layer).collect());
        list.ok_or_else(|| inner.wrong(key, &wanted))
    };
    let (full, delta) = (list("full_attn_layers")?, list("kda_layers")?);
    let of_layer = |layer: u64| match (full.contains(&layer), delta.contains(&layer)) {
        (true, false) => Ok(true),
        (false, true) => Ok(false),
        _ => {
            let wanted = format!("layer {layer} must be in either kda_layers or full_attn_layers");
            Err(inner.wrong("full_attn_layers", &wanted))
        }
    };
    (1..=layers).map(of_layer).collect()
}
