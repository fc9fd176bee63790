//! How a model's layers are wired where they differ from Llama's.

use crate::model::sliding_window::SlidingWindow;
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
}

impl Wiring {
    /// Whether it is Llama's.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}
