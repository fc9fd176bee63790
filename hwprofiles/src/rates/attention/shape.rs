//! What the time of attention depends on.

use crate::units::{Elements, Flop};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Prompt processing, or one token per sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Prompt processing.
    Prefill,
    /// One new token per sequence.
    Decode,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        })
    }
}

/// Causal attention of equal sequences in one layer: each new token attends to the past ones, to
/// the new ones before it, and to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttentionShape {
    /// Prefill and decode run different kernels.
    pub phase: Phase,
    /// Sequences.
    pub batch: u64,
    /// Queries per sequence; 1 in decode.
    pub new_tokens: u64,
    /// Tokens in the KV cache before the step, per sequence.
    pub past_tokens: u64,
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Values per head.
    pub head_dim: u64,
}

impl fmt::Display for AttentionShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim } = self;
        write!(f, "{phase} of {batch} × {new_tokens} tokens after {past_tokens}, ")?;
        write!(f, "{heads} heads of {head_dim} over {kv_heads}")
    }
}

impl AttentionShape {
    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        [self.batch, self.new_tokens, self.heads, self.kv_heads, self.head_dim].contains(&0)
    }

    /// Tokens per sequence, new and past.
    pub fn tokens(&self) -> u64 {
        self.past_tokens + self.new_tokens
    }

    /// (query, key) pairs of one head that the causal mask admits, of all sequences:
    /// batch · (new · past + new · (new + 1) / 2).
    pub fn pairs(&self) -> u128 {
        let (new, past) = (u128::from(self.new_tokens), u128::from(self.past_tokens));
        u128::from(self.batch) * (new * past + new * (new + 1) / 2)
    }

    /// Operations below the causal diagonal: 4 · heads · head dim per pair.
    pub fn flop(&self) -> Flop {
        Flop::new(4 * u128::from(self.heads) * u128::from(self.head_dim) * self.pairs())
    }

    /// Keys and values that are read: 2 · batch · tokens · KV heads · head dim.
    pub fn kv_elements(&self) -> Elements {
        Elements::product(&[2, self.batch, self.tokens(), self.kv_heads, self.head_dim])
    }

    /// Whether as many query heads share a key and a value, and heads have as many values.
    pub(super) fn has_heads_like(&self, other: &Self) -> bool {
        (self.heads * other.kv_heads, self.head_dim) == (other.heads * self.kv_heads, other.head_dim)
    }

    /// How much the heads differ: 1 where they are alike, and otherwise the factor between the
    /// numbers of heads that share a key, times the factor between the values of a head.
    pub(super) fn head_distance(&self, other: &Self) -> f64 {
        let factor = |a: u64, b: u64| {
            let ratio = a as f64 / b as f64;
            ratio.max(1.0 / ratio)
        };
        factor(self.heads * other.kv_heads, self.kv_heads * other.heads)
            * factor(self.head_dim, other.head_dim)
    }
}
