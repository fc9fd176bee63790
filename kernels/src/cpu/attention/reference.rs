//! The reference: all scores of a row, their softmax, then the weighted sum.

use super::operands::{Queries, SeenRows};
use super::scores::Scores;
use crate::cpu::kv::{KvCache, KvShape, KvSpan, NewRows};
use crate::runtime::{Disjoint, Pool};

pub(super) fn attention(
    pool: &Pool,
    queries: Queries<'_>,
    out: &Disjoint<'_, f32>,
    out_stride: usize,
    cache: KvCache<'_>,
    new: Option<NewRows<'_>>,
    spans: &[KvSpan],
) {
    let head_dim = cache.shape().head_dim;
    for (first, span) in KvSpan::with_rows(spans) {
        let seen = SeenRows::new(cache, new, first, span);
        pool.each(span.new * queries.heads, |_, item| {
            let (token, head) = (item / queries.heads, item % queries.heads);
            let row = first + token;
            let q = &queries.q.values[row * queries.q.stride + head * head_dim..][..head_dim];
            // SAFETY: each (row, head) is one item.
            let out = unsafe { out.range(row * out_stride + head * head_dim, head_dim) };
            let kv_head = head / (queries.heads / cache.shape().kv_heads);
            let sink = queries.sinks.get(head).copied();
            one_row(q, queries.scores, sink, seen, kv_head, span.past + token, out);
        });
    }
}

fn one_row(
    q: &[f32],
    scores: Scores,
    sink: Option<f32>,
    seen: SeenRows<'_>,
    kv_head: usize,
    position: usize,
    out: &mut [f32],
) {
    let positions = scores.first_seen(position)..position + 1;
    let shape = seen.cache.shape();
    let mut room = vec![0; 2 * positions.len() * shape.row_bytes()];
    let (keys, values) = seen.block(kv_head, positions, &mut room);
    let (keys, values) = (widen(shape, keys), widen(shape, values));
    let dot = |key: &[f32]| {
        let scaled = scores.scale * q.iter().zip(key).map(|(q, key)| q * key).sum::<f32>();
        scores.cap.map_or(scaled, |cap| cap * (scaled / cap).tanh())
    };
    let scores: Vec<f32> = keys.chunks_exact(q.len()).map(dot).collect();
    let largest = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
    let total = weights.iter().sum::<f32>() + sink.map_or(0.0, |sink| (sink - largest).exp());
    out.fill(0.0);
    for (weight, value) in weights.iter().zip(values.chunks_exact(q.len())) {
        out.iter_mut().zip(value).for_each(|(out, value)| *out += weight / total * value);
    }
}

/// Rows of a cache as f32.
fn widen(shape: KvShape, bytes: &[u8]) -> Vec<f32> {
    let mut wide = vec![0.0; bytes.len() / shape.row_bytes() * shape.head_dim];
    let rows = wide.chunks_exact_mut(shape.head_dim).zip(bytes.chunks_exact(shape.row_bytes()));
    rows.for_each(|(wide, row)| shape.read_row(row, wide));
    wide
}
