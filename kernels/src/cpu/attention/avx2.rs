//! How the fast attention is divided into items of work.
//!
//! One new token per sequence (decode) is bound by memory: `decode` reads each key and value once
//! for all query heads that share it. Several new tokens (prefill) are matrix products in
//! `prefill`. Where there are fewer heads than members of the pool, decode also splits the
//! positions, and the partial results are joined by their largest scores.

use super::decode::{DecodeGroup, PartialAttention};
use super::operands::{Queries, SeenRows};
use super::prefill::PromptBlock;
use super::{decode, prefill};
use crate::cpu::kv::{KvCache, KvShape, KvSpan, NewRows};
use crate::cpu::strided::StridedRows;
use crate::runtime::{Disjoint, Pool};

/// The least number of positions in an item of work of its own.
const WORTH_SPLITTING: usize = 256;
/// Query rows (tokens × heads of a group) that share one pass over the keys in prefill.
const QUERY_ROWS: usize = 96;

/// Whether the vector kernels support this head size. The sizes of real models are multiples of 16.
pub(super) fn fits(head_dim: usize) -> bool {
    head_dim.is_multiple_of(16)
}

/// Floats of scratch for one call.
pub(super) fn scratch_floats(members: usize, heads: usize, shape: KvShape, spans: usize) -> usize {
    let group = heads / shape.kv_heads;
    let partials = (spans * shape.kv_heads + 4 * members) * group * PartialAttention::floats(shape.head_dim);
    members * member_floats(group, shape.head_dim) + partials
}

/// Floats of scratch that a call takes in addition where some keys are not in the cache yet.
pub(super) fn gather_floats(members: usize, shape: KvShape) -> usize {
    members * SeenRows::floats(shape, prefill::KEYS)
}

/// Floats of one member's working memory.
fn member_floats(group: usize, head_dim: usize) -> usize {
    let floats = decode::floats(group).max(prefill::floats(query_tokens(group) * group, head_dim));
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
    new: Option<NewRows<'_>>,
    spans: &[KvSpan],
    scratch: &mut [f32],
) {
    let shape = cache.shape();
    let group = queries.heads / shape.kv_heads;
    let member_floats = member_floats(group, shape.head_dim);
    let (members, rest) = scratch.split_at_mut(pool.members() * member_floats);
    let gathers = if new.is_some() { gather_floats(pool.members(), shape) } else { 0 };
    let (rooms, partials) = rest.split_at_mut(gathers);
    let call = AttentionCall {
        queries,
        out,
        out_stride,
        cache,
        new,
        group,
        members: Disjoint::new(members),
        member_floats,
        rooms: Disjoint::new(rooms),
        room_floats: gathers / pool.members(),
    };
    let (single, several): (Vec<_>, Vec<_>) =
        KvSpan::with_rows(spans).filter(|(_, span)| span.new > 0).partition(|(_, span)| span.new == 1);
    call.single(pool, &single, partials);
    call.several(pool, &several);
}

/// The operands of one call.
struct AttentionCall<'a> {
    queries: Queries<'a>,
    out: &'a Disjoint<'a, f32>,
    out_stride: usize,
    cache: KvCache<'a>,
    /// Keys and values that are not in the cache yet.
    new: Option<NewRows<'a>>,
    /// Query heads per key/value head.
    group: usize,
    /// The working memory of all members, and the floats of one.
    members: Disjoint<'a, f32>,
    member_floats: usize,
    /// Room of all members for keys and values that do not lie in the cache one after another, and
    /// the floats of one.
    rooms: Disjoint<'a, f32>,
    room_floats: usize,
}

impl AttentionCall<'_> {
    /// The working memory of one member.
    ///
    /// # Safety
    /// Only that member calls it, and drops the result before the next call.
    #[allow(clippy::mut_from_ref)]
    unsafe fn member(&self, member: usize) -> &mut [f32] {
        // SAFETY: the caller's promise; members' parts do not overlap.
        unsafe { self.members.range(member * self.member_floats, self.member_floats) }
    }

    /// Computes spans of one new token, each with its row.
    fn single(&self, pool: &Pool, spans: &[(usize, KvSpan)], partials: &mut [f32]) {
        let shape = self.cache.shape();
        let heads = spans.len() * shape.kv_heads;
        let rows_seen = |span: &KvSpan| self.queries.scores.rows_seen(span.past, shape.capacity);
        let longest = spans.iter().map(|(_, span)| rows_seen(span).len()).max().unwrap_or(0);
        let wanted = if pool.members() == 1 { 1 } else { (4 * pool.members()).div_ceil(heads.max(1)) };
        let splits = wanted.min(longest.div_ceil(WORTH_SPLITTING)).max(1);
        let partial_floats = self.group * PartialAttention::floats(shape.head_dim);
        let partials = &mut partials[..heads * splits * partial_floats];
        let shared = Disjoint::new(partials);
        pool.each(heads * splits, |member, item| {
            let (head, split) = (item / splits, item % splits);
            let (row, span) = spans[head / shape.kv_heads];
            let kv_head = head % shape.kv_heads;
            let rows = rows_seen(&span);
            let (first, seen) = (rows.start, rows.len());
            let positions = first + seen * split / splits..first + seen * (split + 1) / splits;
            // SAFETY: each partial result is one item's; each member has its own working memory; a
            // CPU that runs this path has AVX2, FMA and F16C.
            unsafe {
                let partial = shared.range(item * partial_floats, partial_floats);
                let q = self.queries.group(row, kv_head, self.group, shape.head_dim);
                let (keys, values) =
                    (self.cache.keys(span.sequence, kv_head), self.cache.values(span.sequence, kv_head));
                let (scoring, scores) = (self.queries.scores, self.member(member));
                DecodeGroup { keys, values, positions, q, scoring, out: partial, scores }.run(shape);
            }
        });
        for head in 0..heads {
            let (row, kv_head) = (spans[head / shape.kv_heads].0, head % shape.kv_heads);
            let parts = &partials[head * splits * partial_floats..][..splits * partial_floats];
            let at = row * self.out_stride + kv_head * self.group * shape.head_dim;
            // SAFETY: the team has finished, and only this thread writes.
            let out = unsafe { self.out.range(at, self.group * shape.head_dim) };
            let sinks = self.queries.group_sinks(kv_head, self.group);
            PartialAttention::join(parts, self.group, shape.head_dim, sinks, out);
        }
    }

    /// Computes spans of several new tokens, each with its first row.
    fn several(&self, pool: &Pool, spans: &[(usize, KvSpan)]) {
        let shape = self.cache.shape();
        let tokens = query_tokens(self.group);
        // The last tokens see most positions and take longest. They go first, so that members
        // finish at the same time.
        let blocks: Vec<_> = spans
            .iter()
            .flat_map(|&(row, span)| (0..span.new).step_by(tokens).rev().map(move |token| (row, span, token)))
            .collect();
        pool.each(blocks.len() * shape.kv_heads, |member, item| {
            let (row, span, token) = blocks[item / shape.kv_heads];
            let kv_head = item % shape.kv_heads;
            let tokens = tokens.min(span.new - token);
            let at = (row + token) * self.out_stride + kv_head * self.group * shape.head_dim;
            let q = (row + token) * self.queries.q.stride + kv_head * self.group * shape.head_dim;
            let block = PromptBlock {
                seen: SeenRows::new(self.cache, self.new, row, span),
                kv_head,
                first: span.past + token,
                tokens,
                group: self.group,
                q: StridedRows::new(&self.queries.q.values[q..], self.queries.q.stride),
                scoring: self.queries.scores,
                sinks: self.queries.group_sinks(kv_head, self.group),
                out: self.out,
                out_start: at,
                out_stride: self.out_stride,
            };
            // SAFETY: each (token, head) is one item's; each member has its own working memory; a
            // CPU that runs this path has AVX2, FMA and F16C; `attention` checked the shapes.
            unsafe {
                let room = self.rooms.range(member * self.room_floats, self.room_floats);
                block.run(pool.path(), self.member(member), room);
            }
        });
    }
}
