//! Reads gated delta nets beside attention: Qwen3-Next, Qwen 3.5 and 3.6, OLMo hybrid.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Architecture, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::keys::{Switch, count_from_zero, need_count, texts_of_layers};
use crate::model::config::mixture::{MixtureRules, has_experts, read_mixture};
use crate::model::config::readers::llama::with_experts_in;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::mixer::Mixer;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;

/// Reads such a family; returns the shape of each layer.
pub(crate) fn read_gated_delta(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    let qwen = family.architecture != Architecture::OlmoHybrid;
    model.qkv_bias = Switch::Key("attention_bias", false).read(config)?;
    model.out_bias = model.qkv_bias;
    model.qk_norm = true;
    model.wiring.norms_whole_qk = !qwen;
    if qwen {
        model.norm = Norm::RmsPlusOne;
        model.wiring.output_gate = Switch::Key("attn_output_gate", true).read(config)?;
    }
    let sparse = if has_experts(config)? {
        let rules = MixtureRules { shared_gate: true, normalised: true, ..MixtureRules::NARROW };
        read_mixture(config, &rules, model)?
    } else {
        vec![]
    };
    model.mtp = count_from_zero(config, &["mtp_num_hidden_layers", "num_nextn_predict_layers"])?;
    let need = |key: &str| need_count(config, &[key], MAX_WIDTH);
    let recurrence = Recurrence::GatedDelta {
        key_heads: need("linear_num_key_heads")?,
        value_heads: need("linear_num_value_heads")?,
        key_dim: need("linear_key_head_dim")?,
        value_dim: need("linear_value_head_dim")?,
        taps: need_count(config, &["linear_conv_kernel_dim"], 64)?,
    };
    check_recurrence(config, "linear_num_value_heads", recurrence)?;
    let attends = attending_layers(config, model.layers)?;
    let mut layers = with_experts_in(model, &sparse);
    for (layer, attends) in layers.iter_mut().zip(attends) {
        if !attends {
            make_recurrent(layer, recurrence);
        }
    }
    Ok(layers)
}

/// Turns a layer of attention into one of a recurrence.
pub(crate) fn make_recurrent(layer: &mut Model, recurrence: Recurrence) {
    layer.mixer = Mixer::Recurrent(recurrence);
    layer.qk_norm = false;
    layer.wiring.norms_whole_qk = false;
    layer.wiring.output_gate = false;
    layer.qkv_bias = false;
    layer.out_bias = false;
}

/// Refuses a recurrence that is too wide to count.
pub(crate) fn check_recurrence(
    config: &DocumentSection<'_>,
    key: &str,
    recurrence: Recurrence,
) -> Result<(), ScenarioError> {
    let widest = recurrence.projected().max(recurrence.context_width());
    if widest <= 4 * MAX_WIDTH && recurrence.state_bytes().get() <= 1 << 36 {
        return Ok(());
    }
    Err(config.wrong(key, &format!("it makes a layer {widest} wide, which is too large to count")))
}

/// For each layer whether it attends to the whole context.
fn attending_layers(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<bool>, ScenarioError> {
    const INTERVAL: &str = "full_attention_interval";
    let every = config.count(INTERVAL, 1 << 16)?;
    let by_interval =
        |every: u64| (0..layers).map(|layer| (layer + 1).is_multiple_of(every)).collect::<Vec<_>>();
    let Some(kinds) = texts_of_layers(config, "layer_types", layers)? else {
        return Ok(by_interval(every.unwrap_or(4)));
    };
    let attends = |kind: &str| match kind {
        "full_attention" => Ok(true),
        "linear_attention" => Ok(false),
        _ => {
            Err(config.unsupported("layer_types", "another layer", "full_attention and linear_attention are"))
        }
    };
    let listed = kinds.into_iter().map(attends).collect::<Result<Vec<_>, _>>()?;
    match every {
        Some(every) if by_interval(every) != listed => {
            Err(config.wrong(INTERVAL, "it contradicts layer_types: leave one of them out"))
        }
        _ => Ok(listed),
    }
}
