//! What a call of attention reads and writes.

use super::scores::Scores;
use crate::cpu::kv::{KvCache, KvSpan};
use crate::cpu::strided::{StridedRows, StridedRowsMut};

/// The operands of [`attention()`](super::attention()).
#[derive(Debug)]
pub struct AttentionOperands<'a> {
    /// Query heads, a multiple of the cache's key/value heads.
    pub heads: usize,
    /// How products of queries and keys become scores.
    pub scores: Scores,
    /// The result: one row `[head][head dim]` per new token, in the order of `spans`.
    pub out: StridedRowsMut<'a>,
    /// The queries, in the same order as `out`.
    pub q: StridedRows<'a>,
    /// The keys and values, those of the new tokens included.
    pub cache: KvCache<'a>,
    /// The new tokens of each sequence.
    pub spans: &'a [KvSpan],
}

/// The query side of a call.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    pub(super) q: StridedRows<'a>,
    pub(super) heads: usize,
    pub(super) scores: Scores,
}

impl<'a> Queries<'a> {
    /// The `group` query heads of one row that share key/value head `kv_head`.
    pub(super) fn group(&self, row: usize, kv_head: usize, group: usize, head_dim: usize) -> &'a [f32] {
        &self.q.values[row * self.q.stride + kv_head * group * head_dim..][..group * head_dim]
    }
}
