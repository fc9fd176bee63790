//! Wirings of decoders with plain attention and a network or experts.

use crate::model::architecture::Activation;
use crate::model::config::families::mixture_rules::MixtureRules;
use crate::model::config::keys::Switch;

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
    /// Whether its modules that predict further tokens are counted: like the last layer.
    pub counts_modules: bool,
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
    counts_modules: true,
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
    // They are not published.
    counts_modules: false,
    ..PLAIN
};
pub(crate) const SHARED_EXPERTS: Decoder = Decoder { mixture: Some(EXPERTS), ..PLAIN };
pub(crate) const BIASED_ROUTER: Decoder = Decoder { mixture: Some(BALANCED), ..PLAIN };
pub(crate) const NORMED_HEADS: Decoder = Decoder { qk_norm: Switch::Yes, ..PLAIN };
pub(crate) const NORMED_EXPERTS: Decoder = Decoder { mixture: Some(EXPERTS), ..NORMED_HEADS };
pub(crate) const NORMED_SHARED_EXPERTS: Decoder = Decoder { mixture: Some(BALANCED), ..NORMED_HEADS };
pub(crate) const NORMED_SINKS: Decoder = Decoder { sinks: true, mixture: Some(EXPERTS), ..NORMED_HEADS };
pub(crate) const SANDWICH: Decoder = Decoder { norms_behind: Switch::Yes, ..NORMED_SHARED_EXPERTS };
pub(crate) const OLMO2: Decoder = Decoder { norms_whole_qk: true, ..NORMED_HEADS };
pub(crate) const OLMOE: Decoder = Decoder { mixture: Some(MixtureRules::WIDE), ..OLMO2 };
pub(crate) const AFMOE: Decoder =
    Decoder { norms_behind: Switch::Yes, output_gate: Switch::Yes, mixture: Some(BALANCED), ..NORMED_HEADS };
pub(crate) const LAGUNA: Decoder =
    Decoder { output_gate: Switch::Yes, mixture: Some(BALANCED), ..NORMED_HEADS };
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
pub(crate) const SINKS_EXPERTS: Decoder = Decoder { sinks: true, ..WIDE_EXPERTS };
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
pub(crate) const SARVAM: Decoder =
    Decoder { qk_norm: Switch::Key("use_qk_norm", true), mixture: Some(BALANCED), ..GLM };
pub(crate) const STEP: Decoder = Decoder {
    output_gate: Switch::Yes,
    qk_norm: Switch::Key("use_qk_norm", true),
    mixture: Some(MixtureRules {
        router_bias: Switch::Key("use_moe_router_bias", true),
        normalised: true,
        ..EXPERTS
    }),
    // They have no experts, unlike the last layer.
    counts_modules: false,
    ..PLAIN
};
pub(crate) const MUSE: Decoder =
    Decoder { norms_behind: Switch::Yes, output_gate: Switch::Yes, ..NORMED_HEADS };
pub(crate) const MUSE_EXPERTS: Decoder =
    Decoder { mixture: Some(MixtureRules { normalised: true, ..BALANCED }), ..MUSE };
