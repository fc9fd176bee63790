//! What mixes the tokens of a sequence in a layer.

use crate::model::latent_attention::LatentAttention;
use crate::model::recurrence::Recurrence;
use serde::{Deserialize, Serialize};

/// How tokens of a sequence see each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    /// Attention over keys and values of one or more heads.
    #[default]
    Attention,
    /// Multi-head latent attention.
    Latent(LatentAttention),
    /// DeepSeek-V4's attention over a window and compressed keys.
    Compressed(CompressedAttention),
    /// A recurrence.
    Recurrent(Recurrence),
}

impl Mixer {
    /// Whether it is plain attention.
    pub fn is_plain(&self) -> bool {
        *self == Self::Attention
    }
}

/// DeepSeek-V4's attention: one head of keys, which are the values too, for the tokens of a window
/// and for groups of earlier tokens, each compressed to one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompressedAttention {
    /// Width of the vector that queries are expanded from.
    pub q_rank: u64,
    /// Width of each group's vector that the output is expanded from.
    pub out_rank: u64,
    /// Groups of heads, each with an output projection of its own.
    pub out_groups: u64,
    /// Tokens of the window.
    pub window: u64,
    /// Tokens that one compressed entry stands for; `None` in layers with the window alone.
    pub ratio: Option<u64>,
    /// Sets of keys that the compressor forms: 2 where groups overlap, otherwise 1.
    pub sets: u64,
}

/// A lightning indexer: cheap scores of all cached tokens choose those that attention reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SparseIndex {
    /// Heads of its queries; all share one key.
    pub heads: u64,
    /// Width of a head.
    pub dim: u64,
    /// Most tokens, or compressed entries, that attention then reads.
    pub selected: u64,
    /// Whether the layer has an indexer; otherwise it uses the choice of an earlier layer.
    pub computes: bool,
    /// Whether its keys are kept in FP8 with an f32 scale per 128 numbers; otherwise they have the
    /// KV cache's format.
    pub fp8_keys: bool,
    /// Tokens whose keys are averaged to one, which is scored and kept (Qwen 4); `None` where each
    /// token's key is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<u64>,
}
