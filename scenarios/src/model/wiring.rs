//! How a model's layers are wired where they differ from Llama's.

use crate::model::sliding_window::SlidingWindow;
use hwprofiles::statistics::normal_share;
use serde::{Deserialize, Serialize};

/// What the two halves of a layer, attention and the feed-forward network, read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockOrder {
    /// The feed-forward network reads the residual after attention is added to it.
    #[default]
    Sequential,
    /// Both read the same residual x, each through its own norm:
    /// x + attention(norm₁(x)) + network(norm₂(x)).
    Parallel,
    /// Both read the same normed residual: x + attention(norm(x)) + network(norm(x)).
    ParallelOneNorm,
    /// The layer has a mixer and no network (Nemotron-H).
    MixerOnly,
    /// The layer has a network and no mixer (Nemotron-H).
    NetworkOnly,
}

/// The factor of the query at position p: 1 + scale · ln(1 + ⌊(p + 1) / tokens⌋)
/// (arXiv:2501.19399, as Llama 4 has it).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueryGrowth {
    /// Factor of the logarithm.
    pub scale: f64,
    /// Positions of a step.
    pub tokens: f64,
}

impl QueryGrowth {
    /// The factor at `position`.
    pub fn factor(&self, position: u64) -> f64 {
        1.0 + self.scale * ((position + 1) as f64 / self.tokens).floor().ln_1p()
    }
}

/// Embeddings of the last few tokens together, which some layers look up in hashed tables of their
/// own and add to all residual streams in front of the mixer (Qwen 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NgramEmbedding {
    /// Rows of the tables of all such layers together.
    pub rows: u64,
    /// Rows that a token looks up for one layer: one for each hash.
    pub hashes: u64,
    /// Numbers of a row.
    pub width: u64,
    /// Taps of the convolution behind the look-up.
    pub taps: u64,
    /// Tokens from one tap to the next: those of the longest n-gram.
    pub tokens: u64,
}

impl NgramEmbedding {
    /// Numbers that a token looks up for one layer.
    pub(crate) fn looked_up(&self) -> u64 {
        self.hashes * self.width
    }
}

/// A family's differences from Llama; the default has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Wiring {
    /// What the halves of a layer read.
    pub block: BlockOrder,
    /// Leading columns of each head that are rotated; `None` means all of them.
    pub rotary_dim: Option<u64>,
    /// Whether a rotated pair is two neighbouring columns, instead of one column of each half.
    pub rotates_neighbours: bool,
    /// Whether embeddings are multiplied by √hidden before the first layer.
    pub scaled_embeddings: bool,
    /// Bias on the logits.
    pub head_bias: bool,
    /// Whether the output of each half of a layer is normed before it is added to the residual.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub norms_behind: bool,
    /// Scores are divided by the square root of this; `None` means the head's width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_scalar: Option<u64>,
    /// Scores x become cap · tanh(x / cap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_cap: Option<f64>,
    /// Logits x become cap · tanh(x / cap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_cap: Option<f64>,
    /// The sliding window, if some layers have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<SlidingWindow>,
    /// Base of the rotary frequencies in layers with a window, if it differs from the other
    /// layers'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_theta: Option<f64>,
    /// Width of a head's value, if it differs from the key's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<u64>,
    /// Whether the mixer's output is multiplied by a gate that is projected with the queries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_gate: bool,
    /// Whether that gate has one number for each head, instead of one for each column.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gates_heads: bool,
    /// Whether each head has a learned score that no token has (an attention sink).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sinks: bool,
    /// The limit of gate and up, if the network's gate is gpt-oss's: (up + 1) · gate · σ(1.702 ·
    /// gate), with gates of at most this, and ups from minus this to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_limit: Option<f64>,
    /// Whether keys and values are those of an earlier layer: none are projected or cached here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_kv: bool,
    /// Whether values are the keys before rotation: none are projected, but both are cached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keys_are_values: bool,
    /// Whether each head's value is normed too, without weights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub value_norm: bool,
    /// Whether a layer multiplies the residual behind it by a learned number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layer_scale: bool,
    /// Whether experts and shared expert read the residual through norms of their own, as does the
    /// router; each has a norm behind it, and their sum has another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub norms_beside: bool,
    /// Whether the norms of q and k span all heads instead of one head.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub norms_whole_qk: bool,
    /// Whether q and k are not rotated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrotated: bool,
    /// Whether each head of q and k is divided by its root mean square after rotation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub norms_rotated_qk: bool,
    /// How queries grow with their position, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_growth: Option<QueryGrowth>,
    /// Copies of the residual stream between layers (hyper-connections), if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual_streams: Option<u64>,
    /// Rank of the mixers that read those copies, each with a norm over all of them, if they are of
    /// low rank (Qwen 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_rank: Option<u64>,
    /// Embeddings of n-grams: of a layer, if it looks them up; of a model, if some layer does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ngrams: Option<NgramEmbedding>,
    /// Width of the embedding that each layer looks up for itself, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_embedding: Option<u64>,
    /// Tokens with such an embedding, if not all have one: later tokens have that of token 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_embedding_tokens: Option<u64>,
    /// Rank of a learned addition to the residual beside attention (LAuReL), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_rank_residual: Option<u64>,
    /// Residual streams (AltUp), if there are several: a layer computes one and predicts the
    /// others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_streams: Option<u64>,
    /// Whether the streams, predicted ones or those of low rank, become one behind the layer, which
    /// is the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins_streams: bool,
    /// Gates below a cutoff become 0, if there is one: it is this number of standard deviations
    /// above the mean of a token's gates, and is subtracted from the others (Gemma 3n).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_cutoff: Option<f64>,
    /// Of an MTP module ([`crate::Model::mtp_module`]): the layers of the model behind which it is.
    /// Its first residual is projected from a token's embedding and the model's last hidden state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_behind: Option<u64>,
}

impl Wiring {
    /// Whether it is Llama's.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// The share of gates below `cutoff` standard deviations ([`Wiring::gate_cutoff`]), to the six
/// digits of a `config.json`.
pub(crate) fn sparsity(cutoff: f64) -> f64 {
    (normal_share(cutoff) * 1_000_000.0).round() / 1_000_000.0
}
