//! A transformer's shape: everything that the work of its operators depends on.

use crate::model::architecture::{Activation, Architecture, Norm};
use crate::model::experts::Experts;
use crate::model::latent_attention::LatentAttention;
use crate::model::positions::Positions;
use crate::model::wiring::{BlockOrder, Wiring};
use hwprofiles::DType;
use serde::Serialize;

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// Name of the preset or of the folder.
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
    /// Tokens of the vocabulary.
    pub vocab: u64,
    /// Longest context, in tokens.
    pub max_positions: u64,
    /// Normalisation.
    pub norm: Norm,
    /// The norm's ε.
    pub norm_eps: f64,
    /// Non-linearity.
    pub activation: Activation,
    /// Encoding of positions.
    pub positions: Positions,
    /// Biases on q, k, v.
    pub qkv_bias: bool,
    /// Bias on the attention's output projection.
    pub out_bias: bool,
    /// Biases in the feed-forward network.
    pub ffn_bias: bool,
    /// RMS norm on each head of q and k.
    pub qk_norm: bool,
    /// Whether the output head uses the embedding table's weights.
    pub tied_embeddings: bool,
    /// The number format of the published weights.
    pub dtype: DType,
    /// The mixture of experts, in all layers after the dense ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// Latent attention, in all layers. `head_dim` is then the width of a query head, and
    /// `kv_heads` counts the heads that keys and values are expanded to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent: Option<LatentAttention>,
    /// Differences from Llama's wiring.
    #[serde(skip_serializing_if = "Wiring::is_plain")]
    pub wiring: Wiring,
}

impl Model {
    /// Columns of the attention's output: heads · width of a value.
    pub fn context_width(&self) -> u64 {
        self.heads * self.latent.map_or(self.head_dim, |latent| latent.v_dim)
    }

    /// Whether attention and the feed-forward network of a layer read the same residual.
    pub fn is_parallel(&self) -> bool {
        self.wiring.block != BlockOrder::Sequential
    }

    /// Columns of K (or V) of one token: kv_heads · head_dim.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Numbers that one token has in one layer's KV cache: K and V, or latent attention's vector.
    pub fn kv_numbers(&self) -> u64 {
        self.latent.map_or(2 * self.kv_width(), |latent| latent.kv_numbers())
    }

    /// Rows that these numbers are stored in: one for each head of keys and of values, or one
    /// latent vector.
    pub fn kv_rows(&self) -> u64 {
        self.latent.map_or(2 * self.kv_heads, |_| 1)
    }

    /// Columns of q, k and v together; with latent attention, of q and the latent vector.
    pub fn qkv_width(&self) -> u64 {
        self.heads * self.head_dim + self.kv_numbers()
    }

    /// Rows, of `hidden` numbers each, of the projections in front of attention. Latent attention's
    /// chain of small matrices counts as one matrix with as many parameters: the same bytes and
    /// FLOP.
    pub fn qkv_rows(&self) -> u64 {
        let latent =
            |latent: LatentAttention| latent.projection(self.hidden, self.heads).div_ceil(self.hidden);
        self.latent.map_or(self.qkv_width(), latent)
    }

    /// Columns of a head's query that are rotated.
    pub fn rotated_width(&self) -> u64 {
        let partial = self.wiring.rotary_dim.unwrap_or(self.head_dim);
        self.latent.map_or(partial, |latent| latent.rope_dim)
    }

    /// The window of `layer`, in tokens; `None` means that it attends to the whole context.
    pub fn window_of(&self, layer: u64) -> Option<u64> {
        self.wiring.window.filter(|window| window.applies_to(layer)).map(|window| window.tokens)
    }

    /// The base of the rotary frequencies in layers with a window, if it differs from the others'.
    pub fn window_theta(&self) -> Option<f64> {
        self.wiring.window.and(self.wiring.window_theta)
    }

    /// The factor of attention scores: 1 / √head_dim, or 1 / √query_scalar if the model has one.
    pub fn score_scale(&self) -> f64 {
        (self.wiring.query_scalar.unwrap_or(self.head_dim) as f64).sqrt().recip()
    }

    /// Output columns of the (fused gate and) up projection.
    pub fn up_width(&self) -> u64 {
        self.matrices_in_front() * self.intermediate
    }

    /// Parameters of a feed-forward network, or of an expert, for each of its neurons: `hidden` for
    /// each of its two or three matrices.
    pub fn neuron_parameters(&self) -> u64 {
        (self.matrices_in_front() + 1) * self.hidden
    }

    /// Activations between the matrices of an expert, for one token and one neuron: (gate,) up and
    /// inner.
    pub fn neuron_activations(&self) -> u64 {
        self.matrices_in_front() + 1
    }

    fn matrices_in_front(&self) -> u64 {
        if self.activation.is_gated() { 2 } else { 1 }
    }

    /// The same model, in which tokens choose experts by Zipf's law with this exponent. A model
    /// without experts does not change.
    #[must_use]
    pub fn with_expert_skew(self, skew: f64) -> Self {
        Self { experts: self.experts.map(|experts| experts.with_skew(skew)), ..self }
    }
}
