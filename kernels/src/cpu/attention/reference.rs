//! The reference: all scores of a row, their softmax, then the weighted sum.

use super::operands::Queries;
use super::scores::Scores;
use crate::cpu::kv::{KvCache, KvSpan};
use crate::runtime::{Disjoint, Pool};
use std::ops::Range;

pub(super) fn attention(
    pool: &Pool,
    queries: Queries<'_>,
    out: &Disjoint<'_, f32>,
    out_stride: usize,
    cache: KvCache<'_>,
    spans: &[KvSpan],
) {
    let head_dim = cache.shape().head_dim;
    let mut first = 0;
    for span in spans {
        pool.each(span.new * queries.heads, |_, item| {
            let (token, head) = (item / queries.heads, item % queries.heads);
            let row = first + token;
            let q = &queries.q.values[row * queries.q.stride + head * head_dim..][..head_dim];
            // SAFETY: each (row, head) is one item.
            let out = unsafe { out.range(row * out_stride + head * head_dim, head_dim) };
            let kv_head = head / (queries.heads / cache.shape().kv_heads);
            one_row(q, queries.scores, cache, span.sequence, kv_head, span.past + token, out);
        });
        first += span.new;
    }
}

fn one_row(
    q: &[f32],
    scores: Scores,
    cache: KvCache<'_>,
    sequence: usize,
    kv_head: usize,
    position: usize,
    out: &mut [f32],
) {
    let seen = scores.first_seen(position)..position + 1;
    let keys = widen(cache, cache.keys(sequence, kv_head), &seen);
    let values = widen(cache, cache.values(sequence, kv_head), &seen);
    let dot = |key: &[f32]| {
        let scaled = scores.scale * q.iter().zip(key).map(|(q, key)| q * key).sum::<f32>();
        scores.cap.map_or(scaled, |cap| cap * (scaled / cap).tanh())
    };
    let scores: Vec<f32> = keys.chunks_exact(q.len()).map(dot).collect();
    let largest = scores.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
    let total: f32 = weights.iter().sum();
    out.fill(0.0);
    for (weight, value) in weights.iter().zip(values.chunks_exact(q.len())) {
        out.iter_mut().zip(value).for_each(|(out, value)| *out += weight / total * value);
    }
}

/// The rows at `positions` as f32.
fn widen(cache: KvCache<'_>, bytes: &[u8], positions: &Range<usize>) -> Vec<f32> {
    let shape = cache.shape();
    let mut wide = vec![0.0; positions.len() * shape.head_dim];
    let bytes = &bytes[positions.start * shape.row_bytes()..];
    let rows = wide.chunks_exact_mut(shape.head_dim).zip(bytes.chunks_exact(shape.row_bytes()));
    rows.for_each(|(wide, row)| shape.read_row(row, wide));
    wide
}
