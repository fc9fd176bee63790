//! Causal attention of new tokens over a KV cache.

mod avx2;
mod decode;
mod element;
mod operands;
mod prefill;
mod reference;
mod scores;

pub use operands::AttentionOperands;
pub use scores::Scores;

use crate::cpu::kv::{KvShape, KvSpan};
use crate::runtime::{Disjoint, Path, Pool, Scratch};
use operands::Queries;

/// Computes causal attention: out = softmax(scale · q·Kᵀ) · V for every new token and head, with
/// the cap and the window of [`Scores`]. A sink takes part in the softmax and has no value.
///
/// Token i of a span sees the positions 0 ..= past + i, or the last of them that are in its window.
/// So its own key and value must be in the cache already ([`crate::KvCacheMut::append`]), or in
/// [`AttentionOperands::new`]. The cache may be a ring that has room for a window only; then a span
/// that goes beyond its capacity has either one token or its keys and values in `new`. Query head h
/// reads key/value head h / (heads / kv heads). Sums are f32; the fast paths compute the softmax
/// online.
///
/// FLOP: 4·heads·head dim per (token, visible position). Bytes read in decode: the keys and values
/// of every visible position, once per key/value head.
///
/// # Panics
/// Where a span is outside the cache, or its window larger than the ring, where `q`, `out` or the
/// scratch (see [`scratch_bytes`]) is too short, or where `heads` is not a multiple of the cache's
/// heads.
pub fn attention(pool: &Pool, operands: AttentionOperands<'_>, scratch: &mut Scratch) {
    let AttentionOperands { heads, scores, sinks, out, q, cache, new, spans } = operands;
    let shape = cache.shape();
    let is_ring = scores.window.is_some_and(|window| window <= shape.capacity);
    let in_ring = |span: &KvSpan| {
        let reaches = span.past.checked_add(span.new).is_some();
        reaches && is_ring && span.sequence < shape.sequences && (span.new == 1 || new.is_some())
    };
    for span in spans {
        assert!(span.fits(&shape) || in_ring(span), "{span:?} is outside {shape:?}");
    }
    let rows: usize = spans.iter().map(|span| span.new).sum();
    if rows == 0 || heads == 0 || shape.head_dim == 0 {
        return;
    }
    assert!(heads.is_multiple_of(shape.kv_heads), "{heads} heads over {} KV heads", shape.kv_heads);
    let width = heads.checked_mul(shape.head_dim).unwrap_or_else(|| panic!("{heads} heads of {shape:?}"));
    q.assert_holds(rows, width, "q");
    out.assert_holds(rows, width, "out");
    assert!(sinks.is_empty() || sinks.len() == heads, "{} sinks of {heads} heads", sinks.len());
    let gathers = if new.is_some() { gather_bytes(pool.members(), shape) } else { 0 };
    let needed = scratch_bytes(pool.members(), heads, shape, spans.len()) + gathers;
    assert!(scratch.bytes() >= needed, "scratch has {} bytes, {needed} needed", scratch.bytes());
    let queries = Queries { q, heads, scores, sinks };
    let (out_stride, out) = (out.stride, Disjoint::new(out.values));
    if pool.path() >= Path::Avx2 && avx2::fits(shape.head_dim) {
        avx2::attention(pool, queries, &out, out_stride, cache, new, spans, scratch.floats());
    } else {
        reference::attention(pool, queries, &out, out_stride, cache, new, spans);
    }
}

/// Bytes of scratch that [`attention()`] needs on a pool of `members` for `spans` spans of any
/// length.
pub fn scratch_bytes(members: usize, heads: usize, shape: KvShape, spans: usize) -> usize {
    size_of::<f32>() * avx2::scratch_floats(members, heads, shape, spans)
}

/// Bytes of scratch that [`attention()`] needs in addition where it gets
/// [`AttentionOperands::new`].
pub fn gather_bytes(members: usize, shape: KvShape) -> usize {
    size_of::<f32>() * avx2::gather_floats(members, shape)
}
