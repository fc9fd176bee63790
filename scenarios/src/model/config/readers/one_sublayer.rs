//! Reads Nemotron-H and Nemotron 3: each layer is Mamba-2, attention, a network or experts alone.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::Activation;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::{Switch, need_count};
use crate::model::config::mixture::read_mixture;
use crate::model::config::readers::gated_delta::{check_recurrence, make_recurrent};
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::recurrence::Recurrence;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;
use serde_json::Value;

/// What a layer consists of.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Mamba,
    Attention,
    Network,
    Experts,
}

/// Reads such a family; returns the shape of each layer. Its MTP modules have a pattern of their
/// own and are not counted.
pub(crate) fn read_one_sublayer(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    model.activation = match config.text("mlp_hidden_act")?.unwrap_or("relu2") {
        "relu2" => Activation::ReluSquared,
        "silu" | "swish" => Activation::SiluGated,
        _ => return Err(config.unsupported("mlp_hidden_act", "this non-linearity", "relu2 and silu are")),
    };
    if config.flag("use_bias")?.unwrap_or(false) {
        return Err(config.unsupported("use_bias", "a bias of Mamba's projections", "only false is"));
    }
    model.qkv_bias = Switch::Key("attention_bias", false).read(config)?;
    model.out_bias = model.qkv_bias;
    model.ffn_bias = Switch::Key("mlp_bias", false).read(config)?;
    let parts = parts(config, model.layers)?;
    if parts.contains(&Part::Experts) {
        let rules = MixtureRules { router_bias: Switch::Yes, ..MixtureRules::NARROW };
        let mut all = model.clone();
        read_mixture(config, &rules, &mut all)?;
        model.experts = all.experts;
        let latent = config.count("moe_latent_size", MAX_WIDTH)?;
        if let Some(experts) = &mut model.experts {
            experts.latent = latent;
        }
    }
    let recurrence = Recurrence::Mamba2 {
        heads: need_count(config, &["mamba_num_heads"], MAX_WIDTH)?,
        head_dim: need_count(config, &["mamba_head_dim"], MAX_WIDTH)?,
        groups: need_count(config, &["n_groups"], MAX_WIDTH)?,
        state: need_count(config, &["ssm_state_size"], MAX_WIDTH)?,
        taps: need_count(config, &["conv_kernel"], 64)?,
    };
    check_recurrence(config, "mamba_num_heads", recurrence)?;
    let layer = |part: Part| {
        let mut shape = model.clone();
        if part != Part::Experts {
            shape.experts = None;
        }
        if part == Part::Mamba {
            make_recurrent(&mut shape, recurrence);
        }
        shape.wiring.block = match part {
            Part::Mamba | Part::Attention => BlockOrder::MixerOnly,
            Part::Network | Part::Experts => BlockOrder::NetworkOnly,
        };
        shape
    };
    Ok(parts.into_iter().map(layer).collect())
}

/// What each layer is.
fn parts(config: &DocumentSection<'_>, layers: u64) -> Result<Vec<Part>, ScenarioError> {
    const PATTERN: &str = "hybrid_override_pattern";
    const LIST: &str = "layers_block_type";
    let found: Vec<Part> = if let Some(pattern) = config.text(PATTERN)? {
        let part = |letter: char| match letter {
            'M' => Ok(Part::Mamba),
            '*' => Ok(Part::Attention),
            '-' => Ok(Part::Network),
            'E' => Ok(Part::Experts),
            _ => Err(config.unsupported(PATTERN, "another layer", "M, *, - and E are")),
        };
        pattern.chars().map(part).collect::<Result<_, _>>()?
    } else {
        let wanted = "a text with M, *, - or E for each layer is wanted";
        let list = config.get(LIST).ok_or_else(|| config.missing(PATTERN, wanted))?;
        let part = |kind: &Value| match kind.as_str() {
            Some("linear_attention" | "mamba") => Ok(Part::Mamba),
            Some("full_attention" | "attention") => Ok(Part::Attention),
            Some("mlp") => Ok(Part::Network),
            Some("moe") => Ok(Part::Experts),
            _ => Err(config.unsupported(LIST, "another layer", "mamba, attention, mlp and moe are")),
        };
        list.as_array().into_iter().flatten().map(part).collect::<Result<_, _>>()?
    };
    if found.len() as u64 != layers {
        let key = if config.get(PATTERN).is_some() { PATTERN } else { LIST };
        let wanted = format!("it has {} layers, num_hidden_layers is {layers}", found.len());
        return Err(config.wrong(key, &wanted));
    }
    Ok(found)
}
