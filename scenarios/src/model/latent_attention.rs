//! Multi-head latent attention (DeepSeek-V2): keys and values are kept as one short vector per token.

use crate::model::transformer::Model;
use hwprofiles::{AttentionShape, Flop, Phase};
use serde::{Deserialize, Serialize};

/// Widths of multi-head latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latent {
    /// Width of the vector that queries are expanded from; `None` where they come from the residual.
    pub q_rank: Option<u64>,
    /// Width of the vector that keys and values are expanded from.
    pub kv_rank: u64,
    /// Columns of a head's query and key that are rotated; the key's are the same for all heads.
    pub rope_dim: u64,
    /// Columns of a head's query and key that are not.
    pub nope_dim: u64,
    /// Columns of a head's value.
    pub v_dim: u64,
}

impl Latent {
    /// Numbers of one token in one layer's KV cache: the latent vector and the rotated key.
    pub fn kv_numbers(&self) -> u64 {
        self.kv_rank + self.rope_dim
    }

    /// Parameters of the projections in front of attention: queries down and up, latent vector down, keys and
    /// values up.
    pub(crate) fn projection(&self, hidden: u64, heads: u64) -> u64 {
        let queries = heads * (self.nope_dim + self.rope_dim);
        let q = self.q_rank.map_or(hidden * queries, |rank| rank * (hidden + queries));
        q + hidden * self.kv_numbers() + self.kv_rank * heads * (self.nope_dim + self.v_dim)
    }

    /// FLOP of one head for one pair of a query and a key. Prefill attends to keys and values expanded for each
    /// head (their expansion is counted with the projections, for new tokens alone); decode attends to the latent
    /// vectors themselves, which all heads share, with the expansions absorbed into queries and outputs.
    fn flop_per_pair(&self, phase: Phase) -> u64 {
        2 * match phase {
            Phase::Prefill => self.nope_dim + self.rope_dim + self.v_dim,
            Phase::Decode => self.kv_numbers() + self.kv_rank,
        }
    }

    /// The attention that a device's rates are asked for, and its FLOP, of which those of the shape are at most
    /// one head more.
    ///
    /// In decode one KV head holds `kv_numbers` numbers, half of them as its keys and half as its values, so that
    /// bytes are right, and there are as many query heads as make the FLOP right.
    pub(crate) fn attention(&self, model: &Model, shape: AttentionShape) -> (AttentionShape, Flop) {
        let flop_per_pair = self.flop_per_pair(shape.phase);
        let flop = Flop::new(u128::from(model.heads * flop_per_pair) * shape.pairs());
        let shape = match shape.phase {
            Phase::Prefill => {
                AttentionShape { kv_heads: model.heads, head_dim: flop_per_pair.div_ceil(4), ..shape }
            }
            Phase::Decode => {
                let head_dim = self.kv_numbers().div_ceil(2);
                let heads = (model.heads * flop_per_pair).div_ceil(4 * head_dim);
                AttentionShape { heads, kv_heads: 1, head_dim, ..shape }
            }
        };
        (shape, flop)
    }
}
