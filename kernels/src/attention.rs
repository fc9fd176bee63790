//! Causal attention of new tokens over a KV cache.

mod avx2;
mod decode;
mod element;
mod prefill;
mod reference;
mod scores;

pub use scores::Scores;
pub(crate) use scores::soften;

use crate::disjoint::Disjoint;
use crate::{KvCache, KvShape, Path, Pool, Scratch, Span};

/// Computes causal attention: out = softmax(scale · q·Kᵀ) · V for every new token and head; what else becomes of scores
/// is in [`Scores`].
///
/// `q` and `out` have one row per new token, in the order of `spans`, rows `q_stride` and `out_stride` values
/// apart, each row `[head][head dim]`. Token i of a span sees the positions 0 ..= past + i, or the last of them that are in
/// its window, so its own key and value must already be in the cache ([`crate::KvCacheMut::append`]). Query head h reads key/value head
/// h / (heads / kv heads). Sums are f32, the softmax is computed online.
///
/// FLOP: 4·heads·head dim per (token, visible position). Bytes read in decode: keys and values of every
/// visible position once per key/value head.
///
/// # Panics
/// Where a span, a slice or the scratch (see [`scratch_bytes`]) does not fit, or heads is not a multiple of
/// the cache's.
pub fn attention(
    pool: &Pool,
    heads: usize,
    scores: Scores,
    out: &mut [f32],
    out_stride: usize,
    q: &[f32],
    q_stride: usize,
    cache: KvCache<'_>,
    spans: &[Span],
    scratch: &mut Scratch,
) {
    let shape = cache.shape();
    let rows: usize = spans.iter().map(|span| span.new).sum();
    if rows == 0 || heads == 0 || shape.head_dim == 0 {
        return;
    }
    let width = heads * shape.head_dim;
    assert!(heads.is_multiple_of(shape.kv_heads), "{heads} heads over {} KV heads", shape.kv_heads);
    assert!(q_stride >= width && q.len() >= (rows - 1) * q_stride + width, "q is too short for {rows} rows");
    assert!(
        out_stride >= width && out.len() >= (rows - 1) * out_stride + width,
        "out is too short for {rows} rows"
    );
    for span in spans {
        assert!(
            span.sequence < shape.sequences && span.past + span.new <= shape.capacity,
            "{span:?} is outside {shape:?}"
        );
    }
    let needed = scratch_bytes(pool.members(), heads, shape, spans.len());
    assert!(scratch.bytes() >= needed, "scratch has {} bytes, {needed} needed", scratch.bytes());
    let queries = Queries { q, q_stride, heads, scores };
    let out = Disjoint::new(out);
    match pool.path() {
        path if path >= Path::Avx2 && avx2::fits(shape.head_dim) => {
            avx2::attention(pool, queries, &out, out_stride, cache, spans, scratch.floats());
        }
        _ => reference::attention(pool, queries, &out, out_stride, cache, spans),
    }
}

/// The query side of a call.
#[derive(Clone, Copy)]
struct Queries<'a> {
    q: &'a [f32],
    q_stride: usize,
    heads: usize,
    scores: Scores,
}

impl<'a> Queries<'a> {
    /// The `group` query heads of one row that share key/value head `kv_head`.
    fn group(&self, row: usize, kv_head: usize, group: usize, head_dim: usize) -> &'a [f32] {
        &self.q[row * self.q_stride + kv_head * group * head_dim..][..group * head_dim]
    }
}

/// Bytes of scratch that [`attention()`] needs on a pool of `members` for `spans` spans of any length.
pub fn scratch_bytes(members: usize, heads: usize, shape: KvShape, spans: usize) -> usize {
    4 * avx2::scratch_floats(members, heads, shape, spans)
}
