//! Sharing the work of attention, with 256-bit vectors.
//!
//! One new token per sequence (decode) is bound by memory: `decode` reads each key and value once for all the
//! query heads that share it. Several (prefill) are matrix products: `prefill`. Where there are fewer heads than
//! hands, decode also splits the positions and joins the partial results by their largest scores.

use super::Queries;
use super::decode::{Partial, decode};
use super::prefill::prefill;
use crate::disjoint::Disjoint;
use crate::{KvCache, KvShape, Pool, Span};

/// Positions that are worth an item of work of their own.
const WORTH_SPLITTING: usize = 256;
/// Query rows (tokens × heads of a group) that share one pass over the keys in prefill.
const QUERY_ROWS: usize = 96;

/// Whether the vector kernels fit this head size; the sizes of real models are multiples of 16.
pub(super) fn fits(head_dim: usize) -> bool {
    head_dim.is_multiple_of(16)
}

/// Floats of scratch for one call.
pub(super) fn scratch_floats(members: usize, heads: usize, shape: KvShape, spans: usize) -> usize {
    let group = heads / shape.kv_heads;
    let partials = (spans * shape.kv_heads + 4 * members) * group * Partial::floats(shape.head_dim);
    members * member_floats(group, shape.head_dim) + partials
}

/// Floats of one member's working memory.
fn member_floats(group: usize, head_dim: usize) -> usize {
    let floats =
        super::decode::floats(group).max(super::prefill::floats(query_tokens(group) * group, head_dim));
    // Whole cache lines.
    floats.next_multiple_of(16)
}

/// Tokens of one prefill item.
fn query_tokens(group: usize) -> usize {
    (QUERY_ROWS / group).max(1)
}

pub(super) fn attention(
    pool: &Pool,
    queries: Queries<'_>,
    out: &Disjoint<'_, f32>,
    out_stride: usize,
    cache: KvCache<'_>,
    spans: &[Span],
    scratch: &mut [f32],
) {
    let shape = cache.shape();
    let group = queries.heads / shape.kv_heads;
    let member_floats = member_floats(group, shape.head_dim);
    let (members, partials) = scratch.split_at_mut(pool.members() * member_floats);
    let call =
        Call { queries, out, out_stride, cache, group, members: Disjoint::new(members), member_floats };
    let starts = spans.iter().scan(0, |row, span| Some(std::mem::replace(row, *row + span.new)));
    let spans: Vec<(usize, Span)> = starts.zip(spans.iter().copied()).collect();
    let (single, several): (Vec<_>, Vec<_>) =
        spans.into_iter().filter(|(_, span)| span.new > 0).partition(|(_, span)| span.new == 1);
    call.single(pool, &single, partials);
    call.several(pool, &several);
}

/// One call's operands.
struct Call<'a> {
    queries: Queries<'a>,
    out: &'a Disjoint<'a, f32>,
    out_stride: usize,
    cache: KvCache<'a>,
    /// Query heads per key/value head.
    group: usize,
    members: Disjoint<'a, f32>,
    member_floats: usize,
}

impl Call<'_> {
    /// The working memory of one member.
    ///
    /// # Safety
    /// Called by that member alone, once at a time.
    #[allow(clippy::mut_from_ref)]
    unsafe fn member(&self, member: usize) -> &mut [f32] {
        // SAFETY: the caller's promise; members' parts do not overlap.
        unsafe { self.members.range(member * self.member_floats, self.member_floats) }
    }

    /// Spans of one new token, each with its row.
    fn single(&self, pool: &Pool, spans: &[(usize, Span)], partials: &mut [f32]) {
        let shape = self.cache.shape();
        let heads = spans.len() * shape.kv_heads;
        let first_seen = |span: &Span| self.queries.scores.first_seen(span.past);
        let seen = |span: &Span| span.past + 1 - first_seen(span);
        let longest = spans.iter().map(|(_, span)| seen(span)).max().unwrap_or(0);
        let wanted = if pool.members() == 1 { 1 } else { (4 * pool.members()).div_ceil(heads.max(1)) };
        let splits = wanted.min(longest.div_ceil(WORTH_SPLITTING)).max(1);
        let partial_floats = self.group * Partial::floats(shape.head_dim);
        let partials = &mut partials[..heads * splits * partial_floats];
        let shared = Disjoint::new(partials);
        pool.each(heads * splits, |member, item| {
            let (head, split) = (item / splits, item % splits);
            let (row, span) = spans[head / shape.kv_heads];
            let kv_head = head % shape.kv_heads;
            let (first, seen) = (first_seen(&span), seen(&span));
            let positions = first + seen * split / splits..first + seen * (split + 1) / splits;
            // SAFETY: one item per partial result; each member has its own working memory; the path is AVX2 only
            // on a CPU that has it.
            unsafe {
                let partial = shared.range(item * partial_floats, partial_floats);
                let q = self.queries.group(row, kv_head, self.group, shape.head_dim);
                let (keys, values) =
                    (self.cache.keys(span.sequence, kv_head), self.cache.values(span.sequence, kv_head));
                decode(shape, keys, values, positions, q, self.queries.scores, partial, self.member(member));
            }
        });
        for head in 0..heads {
            let (row, kv_head) = (spans[head / shape.kv_heads].0, head % shape.kv_heads);
            let parts = &partials[head * splits * partial_floats..][..splits * partial_floats];
            let at = row * self.out_stride + kv_head * self.group * shape.head_dim;
            // SAFETY: the team has finished; this thread alone writes.
            let out = unsafe { self.out.range(at, self.group * shape.head_dim) };
            Partial::join(parts, self.group, shape.head_dim, out);
        }
    }

    /// Spans of several new tokens, each with its first row.
    fn several(&self, pool: &Pool, spans: &[(usize, Span)]) {
        let shape = self.cache.shape();
        let tokens = query_tokens(self.group);
        // The latest tokens see most and take longest: they go first, so that members end together.
        let blocks: Vec<_> = spans
            .iter()
            .flat_map(|&(row, span)| (0..span.new).step_by(tokens).rev().map(move |token| (row, span, token)))
            .collect();
        pool.each(blocks.len() * shape.kv_heads, |member, item| {
            let (row, span, token) = blocks[item / shape.kv_heads];
            let kv_head = item % shape.kv_heads;
            let tokens = tokens.min(span.new - token);
            let at = (row + token) * self.out_stride + kv_head * self.group * shape.head_dim;
            let q = (row + token) * self.queries.q_stride + kv_head * self.group * shape.head_dim;
            // SAFETY: each (token, head) is one item's; each member has its own working memory; the path is AVX2
            // only on a CPU that has it; the shapes were checked by `attention`.
            unsafe {
                prefill(
                    pool.path(),
                    shape,
                    self.cache.keys(span.sequence, kv_head),
                    self.cache.values(span.sequence, kv_head),
                    span.past + token,
                    tokens,
                    self.group,
                    (&self.queries.q[q..], self.queries.q_stride, self.queries.scores),
                    (self.out, at, self.out_stride),
                    self.member(member),
                );
            }
        });
    }
}
