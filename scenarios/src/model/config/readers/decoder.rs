//! Reads decoders of plain attention with a network or experts, in the wirings of
//! [`Decoder`].

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::Norm;
use crate::model::config::families::decoders::Decoder;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::keys::{count_from_zero, count_of, counts_of_layers, texts_of_layers};
use crate::model::config::mixture::read_mixture;
use crate::model::config::rotary::read_rotary;
use crate::model::config::sizes::MAX_WIDTH;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;

/// Reads such a decoder; returns the shape of each layer, without windows.
pub(crate) fn read_decoder(
    config: &DocumentSection<'_>,
    family: &FamilyDefaults,
    wiring: &Decoder,
    model: &mut Model,
) -> Result<Vec<Model>, ScenarioError> {
    read_rotary(config, family, model)?;
    model.qkv_bias = wiring.qkv_bias.read(config)?;
    model.out_bias = wiring.out_bias.read(config)?;
    model.ffn_bias = wiring.ffn_bias.read(config)?;
    model.qk_norm = wiring.qk_norm.read(config)?;
    model.activation = wiring.activation;
    // Cohere's mixtures have RMS norms where the file writes their key.
    let rms = family.model_type == "cohere2_moe" && config.get("rms_norm_eps").is_some();
    if wiring.layer_norm && !rms {
        model.norm = Norm::Layer;
    }
    model.wiring.head_bias = wiring.head_bias.read(config)?;
    model.wiring.norms_whole_qk = wiring.norms_whole_qk && model.qk_norm;
    model.wiring.norms_behind = wiring.norms_behind.read(config)?;
    model.wiring.output_gate = wiring.output_gate.read(config)?;
    let whole_heads = config.get("gating").is_some_and(|gating| gating.as_str() != Some("per-element"));
    model.wiring.gates_heads = model.wiring.output_gate && whole_heads;
    if wiring.parallel.read(config)? {
        model.wiring.block = BlockOrder::ParallelOneNorm;
    }
    if wiring.counts_modules {
        model.mtp = count_from_zero(config, &["num_nextn_predict_layers", "num_mtp_layers"])?;
    }
    let sparse = match &wiring.mixture {
        Some(rules) => read_mixture(config, rules, model)?,
        None => vec![],
    };
    let heads = listed_heads(config, model)?;
    let dense_width = count_of(config, &["prefix_dense_intermediate_size"], MAX_WIDTH)?;
    let layer = |layer: u64| {
        let mut shape = model.clone();
        shape.wiring.sinks = wiring.sinks;
        shape.heads = heads.get(layer as usize).copied().unwrap_or(model.heads);
        if sparse.get(layer as usize) == Some(&false) {
            shape.experts = None;
            shape.intermediate = dense_width.unwrap_or(model.intermediate);
        }
        shape
    };
    Ok((0..model.layers).map(layer).collect())
}

/// The heads of each layer, if the file lists them, or has another number for layers with a window.
fn listed_heads(config: &DocumentSection<'_>, model: &Model) -> Result<Vec<u64>, ScenarioError> {
    const KEY: &str = "num_attention_heads_per_layer";
    const WINDOWED: &str = "num_sliding_attention_heads";
    let other = config.section("attention_other_setting")?;
    let windowed = match (config.count(WINDOWED, MAX_WIDTH)?, &other) {
        (Some(heads), _) => Some((*config, WINDOWED, heads)),
        (None, Some(other)) => {
            other.count("num_attention_heads", MAX_WIDTH)?.map(|heads| (*other, "num_attention_heads", heads))
        }
        (None, None) => None,
    };
    let (at, key, heads) = match windowed {
        Some((at, key, heads)) => {
            let kinds = texts_of_layers(config, "layer_types", model.layers)?.unwrap_or_default();
            let of = |kind: &str| if kind == "sliding_attention" { heads } else { model.heads };
            (at, key, kinds.into_iter().map(of).collect())
        }
        None => (*config, KEY, counts_of_layers(config, KEY, model.layers)?.unwrap_or_default()),
    };
    let most = MAX_WIDTH / model.head_dim;
    let is_wrong = |heads: &u64| !(1..=most).contains(heads) || !heads.is_multiple_of(model.kv_heads);
    match heads.iter().find(|heads| is_wrong(heads)) {
        Some(wrong) => {
            let wanted = format!(
                "{wrong} heads: multiples of num_key_value_heads, which is {}, up to {most} are wanted",
                model.kv_heads
            );
            Err(at.wrong(key, &wanted))
        }
        None => Ok(heads),
    }
}
