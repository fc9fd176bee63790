//! A transformer's shape: everything that its operators' work depends on.

use hwprofiles::DType;
use serde::{Deserialize, Serialize};

/// A family of transformers: how its tensors are named and its layer is wired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Llama 1–3 and what is wired alike (Mistral).
    Llama,
    /// Llama with biases on q, k, v.
    Qwen2,
    /// Llama with RMS norms on each head of q and k.
    Qwen3,
    /// OPT: layer norms, biases, ReLU, learned positions.
    Opt,
}

/// Normalisation in front of each half of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// x / rms(x) · w
    Rms,
    /// (x − mean) / std · w + b
    Layer,
}

/// The feed-forward network's non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// silu(gate) · up: two matrices in front.
    SiluGated,
    /// max(0, x)
    Relu,
    /// x · Φ(x), exact.
    Gelu,
    /// x · Φ(x), by tanh.
    GeluTanh,
}

impl Activation {
    /// Whether the network has a gate beside its up projection.
    pub fn is_gated(self) -> bool {
        self == Activation::SiluGated
    }
}

/// Llama 3's stretching of low rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Llama3Scaling {
    /// Divisor of the low frequencies.
    pub factor: f64,
    /// Wavelengths above original / this are divided.
    pub low_freq_factor: f64,
    /// Wavelengths below original / this are kept.
    pub high_freq_factor: f64,
    /// Context of the first training stage.
    pub original_max_positions: u64,
}

/// How a token's place enters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// Rotation of q and k.
    Rotary {
        /// Base of the frequencies.
        theta: f64,
        /// Stretching, if any.
        scaling: Option<Llama3Scaling>,
    },
    /// A learned table added to the embeddings.
    Learned {
        /// Rows in front of position 0.
        offset: u64,
    },
}

/// A dense decoder-only transformer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Preset or folder name.
    pub name: String,
    /// The family.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of one head.
    pub head_dim: u64,
    /// Width of the feed-forward network.
    pub intermediate: u64,
    /// Tokens known.
    pub vocab: u64,
    /// Longest context.
    pub max_positions: u64,
    /// Normalisation.
    pub norm: Norm,
    /// Its ε.
    pub norm_eps: f64,
    /// Non-linearity.
    pub activation: Activation,
    /// Positions.
    pub positions: Positions,
    /// Biases on q, k, v.
    pub qkv_bias: bool,
    /// Bias on the attention's output projection.
    pub out_bias: bool,
    /// Biases in the feed-forward network.
    pub ffn_bias: bool,
    /// RMS norm on each head of q and k.
    pub qk_norm: bool,
    /// Whether the head is the embedding table.
    pub tied_embeddings: bool,
    /// The format its weights come in.
    pub dtype: DType,
}

impl Model {
    /// Columns of the attention's context: heads · head_dim.
    pub fn context_width(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Columns of K (or V) of one token: kv_heads · head_dim.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Columns of q, k and v together.
    pub fn qkv_width(&self) -> u64 {
        self.context_width() + 2 * self.kv_width()
    }

    /// Output columns of the (fused gate and) up projection.
    pub fn up_width(&self) -> u64 {
        if self.activation.is_gated() { 2 * self.intermediate } else { self.intermediate }
    }
}
