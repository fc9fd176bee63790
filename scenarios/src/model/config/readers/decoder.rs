//! Reads decoders of plain attention with a network or experts, in wirings that a table describes.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::{Activation, Norm};
use crate::model::config::families::family::FamilyDefaults;
use crate::model::config::keys::Switch;
use crate::model::config::mixture::{MixtureRules, read_mixture};
use crate::model::config::rotary::read_rotary;
use crate::model::transformer::Model;
use crate::model::wiring::BlockOrder;

/// How a family differs from Llama.
pub(crate) struct Decoder {
    /// Biases on q, k, v.
    pub qkv_bias: Switch,
    /// Bias on the output projection.
    pub out_bias: Switch,
    /// Biases in the network.
    pub ffn_bias: Switch,
    /// Bias on the logits.
    pub head_bias: Switch,
    /// Norms on q and k.
    pub qk_norm: Switch,
    /// Whether those span all heads.
    pub norms_whole_qk: bool,
    /// Norms behind sublayers, beside those in front.
    pub norms_behind: Switch,
    /// Layer norms instead of RMS norms.
    pub layer_norm: bool,
    /// A gate on attention's output.
    pub output_gate: Switch,
    /// Sinks in layers with a window.
    pub sinks: bool,
    /// A parallel block, with one norm.
    pub parallel: Switch,
    /// The non-linearity.
    pub activation: Activation,
    /// The experts, if the family has them.
    pub mixture: Option<MixtureRules>,
}

/// Llama with biases by their keys.
pub(crate) const PLAIN: Decoder = Decoder {
    qkv_bias: Switch::Key("attention_bias", false),
    out_bias: Switch::Key("attention_bias", false),
    ffn_bias: Switch::Key("mlp_bias", false),
    head_bias: Switch::No,
    qk_norm: Switch::No,
    norms_whole_qk: false,
    norms_behind: Switch::No,
    layer_norm: false,
    output_gate: Switch::No,
    sinks: false,
    parallel: Switch::No,
    activation: Activation::SiluGated,
    mixture: None,
};
const EXPERTS: MixtureRules = MixtureRules::NARROW;
/// The expert's bias that balances their load is part of the file.
const BALANCED: MixtureRules = MixtureRules { router_bias: Switch::Yes, ..EXPERTS };
pub(crate) const QWEN2_MOE: Decoder = Decoder {
    qkv_bias: Switch::Key("qkv_bias", true),
    out_bias: Switch::No,
    mixture: Some(MixtureRules { shared_gate: true, ..EXPERTS }),
    ..PLAIN
};
pub(crate) const GLM: Decoder = Decoder { out_bias: Switch::No, ..PLAIN };
pub(crate) const GLM4: Decoder = Decoder { norms_behind: Switch::Yes, ..GLM };
pub(crate) const GLM4_MOE: Decoder =
    Decoder { qk_norm: Switch::Key("use_qk_norm", false), mixture: Some(BALANCED), ..GLM };
pub(crate) const MINIMAX_M2: Decoder = Decoder {
    qk_norm: Switch::Key("use_qk_norm", true),
    norms_whole_qk: true,
    mixture: Some(MixtureRules { router_bias: Switch::Key("use_routing_bias", true), ..MixtureRules::WIDE }),
    ..PLAIN
};
pub(crate) const SHARED_EXPERTS: Decoder = Decoder { mixture: Some(EXPERTS), ..PLAIN };
pub(crate) const BIASED_ROUTER: Decoder = Decoder { mixture: Some(BALANCED), ..PLAIN };
pub(crate) const NORMED_HEADS: Decoder = Decoder { qk_norm: Switch::Yes, ..PLAIN };
pub(crate) const NORMED_EXPERTS: Decoder = Decoder { mixture: Some(EXPERTS), ..NORMED_HEADS };
pub(crate) const NORMED_SHARED_EXPERTS: Decoder = Decoder { mixture: Some(BALANCED), ..NORMED_HEADS };
pub(crate) const OLMO2: Decoder = Decoder { norms_whole_qk: true, ..NORMED_HEADS };
pub(crate) const OLMOE: Decoder = Decoder { mixture: Some(MixtureRules::WIDE), ..OLMO2 };
pub(crate) const AFMOE: Decoder =
    Decoder { norms_behind: Switch::Yes, output_gate: Switch::Yes, mixture: Some(BALANCED), ..NORMED_HEADS };
pub(crate) const LAGUNA: Decoder = Decoder { mixture: Some(BALANCED), ..NORMED_HEADS };
pub(crate) const BAILING: Decoder = Decoder {
    qkv_bias: Switch::Key("use_qkv_bias", false),
    out_bias: Switch::Key("use_bias", false),
    ffn_bias: Switch::No,
    qk_norm: Switch::Key("use_qk_norm", false),
    mixture: Some(MixtureRules {
        router_bias: Switch::Key("moe_router_enable_expert_bias", false),
        ..EXPERTS
    }),
    ..PLAIN
};
pub(crate) const HUNYUAN: Decoder = Decoder { qk_norm: Switch::Key("use_qk_norm", true), ..PLAIN };
pub(crate) const HUNYUAN_MOE: Decoder = Decoder { mixture: Some(MixtureRules::WIDE), ..HUNYUAN };
pub(crate) const ERNIE: Decoder = Decoder {
    qkv_bias: Switch::Key("use_bias", false),
    out_bias: Switch::Key("use_bias", false),
    ffn_bias: Switch::Key("use_bias", false),
    ..PLAIN
};
pub(crate) const ERNIE_MOE: Decoder = Decoder { mixture: Some(BALANCED), ..ERNIE };
pub(crate) const PHI_MOE: Decoder = Decoder {
    head_bias: Switch::Key("lm_head_bias", false),
    layer_norm: true,
    ffn_bias: Switch::No,
    mixture: Some(MixtureRules::WIDE),
    ..PLAIN
};
pub(crate) const WIDE_EXPERTS: Decoder = Decoder { mixture: Some(MixtureRules::WIDE), ..PLAIN };
pub(crate) const SINKS: Decoder = Decoder { sinks: true, ..PLAIN };
pub(crate) const PERI_NORM: Decoder = Decoder { norms_behind: Switch::Key("use_post_norm", true), ..PLAIN };
pub(crate) const SEED: Decoder = Decoder { out_bias: Switch::Key("attention_out_bias", false), ..PLAIN };
pub(crate) const SQUARED: Decoder = Decoder { activation: Activation::ReluSquared, ..PLAIN };
pub(crate) const APERTUS: Decoder = Decoder { activation: Activation::Xielu, qk_norm: Switch::Yes, ..PLAIN };
pub(crate) const NEMOTRON: Decoder = Decoder { layer_norm: true, ..SQUARED };
pub(crate) const COHERE: Decoder = Decoder {
    layer_norm: true,
    qk_norm: Switch::Key("use_qk_norm", false),
    norms_whole_qk: true,
    parallel: Switch::Yes,
    ..PLAIN
};
pub(crate) const COHERE_MOE: Decoder = Decoder { mixture: Some(MixtureRules::WIDE), ..COHERE };
pub(crate) const STABLE_LM: Decoder = Decoder {
    qkv_bias: Switch::Key("use_qkv_bias", false),
    out_bias: Switch::No,
    layer_norm: true,
    parallel: Switch::Key("use_parallel_residual", false),
    ..PLAIN
};
pub(crate) const STARCODER2: Decoder = Decoder {
    qkv_bias: Switch::Key("use_bias", true),
    out_bias: Switch::Key("use_bias", true),
    ffn_bias: Switch::Key("use_bias", true),
    layer_norm: true,
    activation: Activation::GeluTanh,
    ..PLAIN
};
pub(crate) const VAULT_GEMMA: Decoder = Decoder { activation: Activation::GeluTanhGated, ..PLAIN };

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
