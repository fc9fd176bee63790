//! Reads decoders of plain attention with a network or experts, in the wirings of
//! [`Decoder`].

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Architecture, Norm};
use crate::model::config::families::decoders::Decoder;
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::keys::count_from_zero;
use crate::model::config::mixture::read_mixture;
use crate::model::config::rotary::read_rotary;
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
    if wiring.layer_norm {
        model.norm = Norm::Layer;
    }
    model.wiring.head_bias = wiring.head_bias.read(config)?;
    model.wiring.norms_whole_qk = wiring.norms_whole_qk && model.qk_norm;
    model.wiring.norms_behind = wiring.norms_behind.read(config)?;
    model.wiring.output_gate = wiring.output_gate.read(config)?;
    if wiring.parallel.read(config)? {
        model.wiring.block = BlockOrder::ParallelOneNorm;
    }
    // MiniMax-M2's modules are not published.
    if family.architecture != Architecture::MiniMaxM2 {
        model.mtp = count_from_zero(config, &["num_nextn_predict_layers", "num_mtp_layers"])?;
    }
    let sparse = match &wiring.mixture {
        Some(rules) => read_mixture(config, rules, model)?,
        None => vec![],
    };
    let layer = |layer: u64| {
        let mut shape = model.clone();
        shape.wiring.sinks = wiring.sinks;
        if sparse.get(layer as usize) == Some(&false) {
            shape.experts = None;
        }
        shape
    };
    Ok((0..model.layers).map(layer).collect())
}
