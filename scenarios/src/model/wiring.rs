//! How a model is wired where it is not wired as Llama is.

use crate::model::sliding_window::Window;
use serde::{Deserialize, Serialize};

/// What the two halves of a layer read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// The feed-forward network reads what attention has been added to.
    #[default]
    Sequential,
    /// Both read the same residual x, each through a norm of its own: x + attention(norm₁(x)) + network(norm₂(x)).
    Parallel,
    /// Both read the same normed residual: x + attention(norm(x)) + network(norm(x)).
    ParallelOneNorm,
}

/// A family's departures from Llama; the default has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Wiring {
    /// What the halves of a layer read.
    pub block: Block,
    /// Columns in front of each head that are rotated; `None` means all of them.
    pub rotary_dim: Option<u64>,
    /// Whether a rotated pair is two neighbouring columns rather than one of each half.
    pub rotates_neighbours: bool,
    /// Whether embeddings are multiplied by √hidden before the first layer.
    pub scaled_embeddings: bool,
    /// Bias on the logits.
    pub head_bias: bool,
    /// Whether what each half of a layer makes is normed before it is added.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub norms_behind: bool,
    /// Scores are divided by its root; `None` means the head's width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_scalar: Option<u64>,
    /// Scores x become cap · tanh(x / cap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_cap: Option<f64>,
    /// Logits x become cap · tanh(x / cap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_cap: Option<f64>,
    /// Layers that do not see all that came before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Base of the rotary frequencies in layers with a window, where it is one of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_theta: Option<f64>,
}

impl Wiring {
    /// Whether it is Llama's.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}
