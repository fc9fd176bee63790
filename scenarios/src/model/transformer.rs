//! A transformer's shape: everything that its operators' work depends on.

use crate::model::experts::Experts;
use crate::model::latent_attention::Latent;
use crate::model::wiring::{Block, Wiring};
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
    /// Mistral with a mixture of experts.
    Mixtral,
    /// Qwen 3 with a mixture of experts.
    #[serde(rename = "qwen3_moe")]
    Qwen3Moe,
    /// gpt-oss: a mixture of experts, biases everywhere, a sink for each head's attention.
    #[serde(rename = "gpt_oss")]
    GptOss,
    /// DeepSeek-V2: latent attention, shared and routed experts.
    #[serde(rename = "deepseek_v2")]
    DeepSeekV2,
    /// DeepSeek-V3: as V2, with another router.
    #[serde(rename = "deepseek_v3")]
    DeepSeekV3,
    /// Gemma 1: norms of 1 + weight, scaled embeddings, a GELU gate.
    Gemma,
    /// Gemma 2: Gemma with norms behind sublayers too, soft caps, and windows in every second layer.
    Gemma2,
    /// Gemma 3: Gemma 2 with norms of q and k instead of caps, and another rotation in layers with windows.
    Gemma3,
    /// Phi 1 to 2: layer norms, biases everywhere, parallel blocks with one norm, partial rotation.
    Phi,
    /// Phi 3 and 4: Llama with q, k, v in one tensor, and gate and up in one.
    Phi3,
    /// GPT-NeoX: layer norms, biases, parallel blocks of two norms, partial rotation.
    #[serde(rename = "gpt_neox")]
    GptNeoX,
    /// GPT-J: parallel blocks with one norm, partial rotation of neighbours, a bias on the logits.
    GptJ,
    /// Falcon: layer norms, parallel blocks, few heads of keys and values.
    Falcon,
}

/// Normalisation in front of each half of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// x / rms(x) · w
    Rms,
    /// x / rms(x) · (1 + w)
    RmsPlusOne,
    /// (x − mean) / std · w + b
    Layer,
}

/// The feed-forward network's non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// silu(gate) · up: two matrices in front.
    SiluGated,
    /// gelu(gate) · up, by tanh: two matrices in front.
    GeluTanhGated,
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
        matches!(self, Activation::SiluGated | Activation::GeluTanhGated)
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

/// YaRN's stretching of rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct YarnScaling {
    /// How many times longer the context becomes.
    pub factor: f64,
    /// Context of the first training stage.
    pub original_max_positions: u64,
    /// Frequencies of more turns than this over the first context are kept.
    pub beta_fast: f64,
    /// Those of fewer turns than this are divided.
    pub beta_slow: f64,
    /// Whether the pairs between them are counted whole.
    pub truncate: bool,
    /// What cosines and sines are multiplied by.
    pub attention: f64,
}

/// LongRoPE's divisors of rotary frequencies, found by search, of each pair its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LongRopeScaling {
    /// For contexts no longer than the first training stage's.
    pub short: Vec<f64>,
    /// For longer ones.
    pub long: Vec<f64>,
    /// Context of the first training stage.
    pub original_max_positions: u64,
    /// What cosines and sines are multiplied by.
    pub attention: f64,
}

/// How a token's place enters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// Rotation of q and k.
    Rotary {
        /// Base of the frequencies.
        theta: f64,
        /// Stretching, if any.
        scaling: Option<Llama3Scaling>,
    },
    /// Rotation of q and k, all frequencies of it divided.
    Linear {
        /// Base of the frequencies.
        theta: f64,
        /// Divisor.
        factor: f64,
    },
    /// Rotation of q and k, stretched by YaRN.
    Yarn {
        /// Base of the frequencies.
        theta: f64,
        /// Stretching.
        scaling: YarnScaling,
    },
    /// Rotation of q and k, stretched by LongRoPE.
    LongRope {
        /// Base of the frequencies.
        theta: f64,
        /// Stretching.
        scaling: LongRopeScaling,
    },
    /// A learned table added to the embeddings.
    Learned {
        /// Rows in front of position 0.
        offset: u64,
    },
}

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// The mixture of experts, in the layers behind its dense ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// Latent attention, in all layers. `head_dim` is then that of queries, `kv_heads` counts what keys and values
    /// are expanded to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent: Option<Latent>,
    /// Where it is not wired as Llama is.
    #[serde(skip_serializing_if = "Wiring::is_plain")]
    pub wiring: Wiring,
}

impl Model {
    /// Columns of the attention's context: heads · width of a value.
    pub fn context_width(&self) -> u64 {
        self.heads * self.latent.map_or(self.head_dim, |latent| latent.v_dim)
    }

    /// Whether attention and the feed-forward network of a layer read the same residual.
    pub fn is_parallel(&self) -> bool {
        self.wiring.block != Block::Sequential
    }

    /// Columns of K (or V) of one token: kv_heads · head_dim.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Numbers of one token in one layer's KV cache: K and V, or latent attention's one vector.
    pub fn kv_numbers(&self) -> u64 {
        self.latent.map_or(2 * self.kv_width(), |latent| latent.kv_numbers())
    }

    /// Rows that these numbers are kept in: one for each head of keys and of values, one latent vector.
    pub fn kv_rows(&self) -> u64 {
        self.latent.map_or(2 * self.kv_heads, |_| 1)
    }

    /// Columns of q, k and v together; of q and the latent vector where there is one.
    pub fn qkv_width(&self) -> u64 {
        self.heads * self.head_dim + self.kv_numbers()
    }

    /// Rows of `hidden` numbers that the projections in front of attention have. Latent attention's chain of small
    /// matrices counts as one matrix of as many parameters: the same bytes and the same FLOP.
    pub fn qkv_rows(&self) -> u64 {
        let latent = |latent: Latent| latent.projection(self.hidden, self.heads).div_ceil(self.hidden);
        self.latent.map_or(self.qkv_width(), latent)
    }

    /// Columns of a head's query that are rotated.
    pub fn rotated_width(&self) -> u64 {
        let partial = self.wiring.rotary_dim.unwrap_or(self.head_dim);
        self.latent.map_or(partial, |latent| latent.rope_dim)
    }

    /// Output columns of the (fused gate and) up projection.
    pub fn up_width(&self) -> u64 {
        self.matrices_in_front() * self.intermediate
    }

    /// Numbers of a feed-forward network, or expert, for each of its neurons: hidden for each of its two or three
    /// matrices.
    pub fn neuron(&self) -> u64 {
        (self.matrices_in_front() + 1) * self.hidden
    }

    /// Numbers between the matrices of an expert for one token and one of its neurons: (gate,) up and inner.
    pub fn inner_numbers(&self) -> u64 {
        self.matrices_in_front() + 1
    }

    fn matrices_in_front(&self) -> u64 {
        if self.activation.is_gated() { 2 } else { 1 }
    }

    /// The same model whose tokens choose experts by Zipf's law with this exponent; a model without experts is as
    /// it was.
    #[must_use]
    pub fn with_expert_skew(self, skew: f64) -> Self {
        Self { experts: self.experts.map(|experts| experts.with_skew(skew)), ..self }
    }
}
