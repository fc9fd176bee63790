//! What a call of attention reads and writes.

use super::scores::Scores;
use crate::cpu::kv::{KvCache, KvShape, KvSpan, NewRows};
use crate::cpu::strided::{StridedRows, StridedRowsMut};
use std::ops::Range;

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
    /// For each query head, the score of a key without a value (an attention sink); empty where
    /// there are none.
    pub sinks: &'a [f32],
    /// The keys and values. Position p is in row p mod capacity. Those of the new tokens are
    /// included, except of the spans that `new` is for.
    pub cache: KvCache<'a>,
    /// The keys and values of spans of several tokens, which are not in the cache yet: they would
    /// replace earlier ones that are still seen. They are rounded to the cache's format.
    pub new: Option<NewRows<'a>>,
    /// The new tokens of each sequence.
    pub spans: &'a [KvSpan],
}

/// The query side of a call.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    pub(super) q: StridedRows<'a>,
    pub(super) heads: usize,
    pub(super) scores: Scores,
    pub(super) sinks: &'a [f32],
}

/// The keys and values that a span sees: those of a cache, and those of its own tokens that are not
/// in the cache yet.
#[derive(Clone, Copy)]
pub(super) struct SeenRows<'a> {
    pub(super) cache: KvCache<'a>,
    pub(super) sequence: usize,
    /// Positions from here on are rows of `new`.
    pub(super) past: usize,
    pub(super) new: Option<NewRows<'a>>,
}

impl<'a> SeenRows<'a> {
    /// Those of `span`, whose first token is row `row` of `new`.
    pub(super) fn new(cache: KvCache<'a>, new: Option<NewRows<'a>>, row: usize, span: KvSpan) -> Self {
        let new = new.filter(|_| span.new > 1).map(|NewRows { keys, values, stride }| {
            let at = row * stride;
            NewRows { keys: &keys[at..], values: &values[at..], stride }
        });
        let past = if new.is_some() { span.past } else { span.past + span.new };
        Self { cache, sequence: span.sequence, past, new }
    }

    /// The bytes of one head's keys and values at consecutive `positions`: in the cache itself
    /// where they lie there one after another, otherwise copied to `room`.
    pub(super) fn block<'b>(
        &self,
        kv_head: usize,
        positions: Range<usize>,
        room: &'b mut [u8],
    ) -> (&'b [u8], &'b [u8])
    where
        'a: 'b,
    {
        let shape = self.cache.shape();
        let row_bytes = shape.row_bytes();
        let (keys, values) =
            (self.cache.keys(self.sequence, kv_head), self.cache.values(self.sequence, kv_head));
        let first = positions.start % shape.capacity.max(1);
        if positions.end <= self.past && first + positions.len() <= shape.capacity {
            let bytes = first * row_bytes..(first + positions.len()) * row_bytes;
            return (&keys[bytes.clone()], &values[bytes]);
        }
        let (to_keys, rest) = room.split_at_mut(positions.len() * row_bytes);
        let to_values = &mut rest[..positions.len() * row_bytes];
        let rows = to_keys.chunks_exact_mut(row_bytes).zip(to_values.chunks_exact_mut(row_bytes));
        for ((to_key, to_value), position) in rows.zip(positions) {
            match (position.checked_sub(self.past), self.new) {
                (Some(token), Some(NewRows { keys, values, stride })) => {
                    let at = token * stride + kv_head * shape.head_dim;
                    shape.write_row(&keys[at..][..shape.head_dim], to_key);
                    shape.write_row(&values[at..][..shape.head_dim], to_value);
                }
                _ => {
                    let at = position % shape.capacity * row_bytes;
                    to_key.copy_from_slice(&keys[at..][..row_bytes]);
                    to_value.copy_from_slice(&values[at..][..row_bytes]);
                }
            }
        }
        (to_keys, to_values)
    }

    /// Floats of room that [`SeenRows::block`] needs for this number of positions.
    pub(super) fn floats(shape: KvShape, positions: usize) -> usize {
        // Whole cache lines.
        (2 * positions * shape.row_bytes()).div_ceil(size_of::<f32>()).next_multiple_of(16)
    }
}

impl<'a> Queries<'a> {
    /// The sinks of the `group` query heads that share key/value head `kv_head`; empty where there
    /// are none.
    pub(super) fn group_sinks(&self, kv_head: usize, group: usize) -> &'a [f32] {
        if self.sinks.is_empty() { &[] } else { &self.sinks[kv_head * group..][..group] }
    }

    /// The `group` query heads of one row that share key/value head `kv_head`.
    pub(super) fn group(&self, row: usize, kv_head: usize, group: usize, head_dim: usize) -> &'a [f32] {
        &self.q.values[row * self.q.stride + kv_head * group * head_dim..][..group * head_dim]
    }
}
