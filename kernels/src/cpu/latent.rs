//! Multi-head latent attention over the latent cache, with the expansions absorbed.
//!
//! A token's entry in the cache is its latent vector c and its rotated key k, which all heads
//! share. A head h has the matrices K and V of the expansion: its key of the token is (K·c, k), its
//! value V·c. The score of a query (qₙ, qᵣ) is qₙ·(K·c) + qᵣ·k = (Kᵀ·qₙ)·c + qᵣ·k, and the output
//! Σ w·(V·c) = V·(Σ w·c). So no key and no value is ever expanded: each query becomes as wide as an
//! entry, attends to entries, and its result becomes a value.

use crate::cpu::kv::{KvSpan, widen};
use crate::cpu::strided::{StridedRows, StridedRowsMut};
use crate::cpu::vector::{RowKernel, compute, sum};
use crate::runtime::{Disjoint, Pool, Scratch};
use hwprofiles::DType;
use std::ops::Range;

/// Widths of latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentShape {
    /// Query heads.
    pub heads: usize,
    /// Columns of a head's query that are not rotated, in front of those that are.
    pub nope: usize,
    /// Rotated columns of a head's query, and of the key of an entry.
    pub rope: usize,
    /// Width of the latent vector, which comes first in an entry.
    pub rank: usize,
    /// Columns of a head's value.
    pub value: usize,
}

impl LatentShape {
    /// Values of an entry of the cache.
    pub fn entry(&self) -> usize {
        self.rank + self.rope
    }

    /// Values of the expansion's matrices, `[head][nope, then value][rank]`.
    pub fn expansion(&self) -> usize {
        self.heads * (self.nope + self.value) * self.rank
    }
}

/// The cache of one layer, `[sequence][position]` entries.
#[derive(Debug, Clone, Copy)]
pub struct LatentCache<'a> {
    /// f32, bf16, int8 or int2.
    pub dtype: DType,
    /// Positions that each sequence has room for.
    pub capacity: usize,
    /// The entries.
    pub bytes: &'a [u8],
}

/// The operands of [`latent_attention`].
#[derive(Debug)]
pub struct LatentOperands<'a> {
    /// Widths.
    pub shape: LatentShape,
    /// Factor of the scores.
    pub scale: f32,
    /// The expansion's matrices, `[head][nope, then value][rank]`.
    pub expansion: &'a [f32],
    /// Rows of `heads` rotated queries, one for each new token.
    pub q: StridedRows<'a>,
    /// The cache; the new tokens are in it.
    pub cache: LatentCache<'a>,
    /// The new tokens of each sequence, in the order of the rows.
    pub spans: &'a [KvSpan],
    /// Rows of `heads` values.
    pub out: StridedRowsMut<'a>,
}

/// Queries that one member computes together: they share the entries that it reads.
const MOST_QUERIES: usize = 16;
/// Entries that are widened at once.
const TILE: usize = 32;

/// Attention of new tokens to all tokens before them and themselves.
///
/// # Panics
/// Where the lengths do not agree, a span is beyond the cache, or the scratch (see
/// [`scratch_bytes`]) is too short.
pub fn latent_attention(pool: &Pool, operands: LatentOperands<'_>, scratch: &mut Scratch) {
    let LatentOperands { shape, scale, expansion, q, cache, spans, out } = operands;
    let rows: usize = spans.iter().map(|span| span.new).sum();
    assert_eq!(expansion.len(), shape.expansion(), "the expansion's matrices");
    q.assert_holds(rows, shape.heads * (shape.nope + shape.rope), "q");
    out.assert_holds(rows, shape.heads * shape.value, "out");
    let each = member_floats(&shape);
    let floats = scratch.floats();
    assert!(floats.len() >= each * pool.members(), "scratch of {} values", floats.len());
    let (stride, out) = (out.stride, Disjoint::new(out.values));
    let floats = Disjoint::new(floats);
    let mut first = 0;
    for span in spans {
        let queries = span.new * shape.heads;
        let block = queries.div_ceil(4 * pool.members()).clamp(1, MOST_QUERIES);
        let entries = entries(&shape, &cache, span);
        pool.each(queries.div_ceil(block), |member, item| {
            // SAFETY: each member has its own part of the scratch.
            let room = unsafe { floats.range(member * each, each) };
            let work = Queries {
                shape: &shape,
                scale,
                expansion,
                q,
                dtype: cache.dtype,
                entries,
                span,
                first,
                which: item * block..queries.min((item + 1) * block),
                room,
            };
            let at = |row: usize, head: usize| {
                // SAFETY: each row and head is one item's.
                unsafe { out.range(row * stride + head * shape.value, shape.value) }
            };
            compute(pool.path(), BlockKernel { work, at });
        });
        first += span.new;
    }
}

/// The entries of a span's sequence.
fn entries<'a>(shape: &LatentShape, cache: &LatentCache<'a>, span: &KvSpan) -> &'a [u8] {
    let end = span.past.checked_add(span.new).filter(|&end| end <= cache.capacity);
    let end = end.unwrap_or_else(|| panic!("{span:?} exceeds {} positions", cache.capacity));
    let entry = cache.dtype.matrix_bytes(1, shape.entry() as u64).get() as usize;
    &cache.bytes[span.sequence * cache.capacity * entry..][..end * entry]
}

/// Values that one member works with.
fn member_floats(shape: &LatentShape) -> usize {
    (2 * MOST_QUERIES + TILE) * shape.entry() + MOST_QUERIES * TILE
}

/// Bytes of scratch that [`latent_attention`] needs on a pool of `members`.
pub fn scratch_bytes(members: usize, shape: &LatentShape) -> usize {
    size_of::<f32>() * members * member_floats(shape)
}

/// Some queries of a span: number i is head i ÷ new, token i mod new.
struct Queries<'a> {
    shape: &'a LatentShape,
    scale: f32,
    expansion: &'a [f32],
    q: StridedRows<'a>,
    dtype: DType,
    entries: &'a [u8],
    span: &'a KvSpan,
    /// The row of the span's first token.
    first: usize,
    which: Range<usize>,
    room: &'a mut [f32],
}

struct BlockKernel<'a, F> {
    work: Queries<'a>,
    at: F,
}

/// The running softmax of a query.
#[derive(Clone, Copy)]
struct Running {
    largest: f32,
    total: f32,
}

impl<'o, F: Fn(usize, usize) -> &'o mut [f32]> RowKernel for BlockKernel<'_, F> {
    #[inline(always)]
    fn compute(self) {
        let Queries { shape, scale, expansion, q, dtype, entries, span, first, which, room } = self.work;
        let (entry, rank) = (shape.entry(), shape.rank);
        let (queries, rest) = room.split_at_mut(MOST_QUERIES * entry);
        let (contexts, rest) = rest.split_at_mut(MOST_QUERIES * entry);
        let (tile, scores) = rest.split_at_mut(TILE * entry);
        let head_rows = shape.nope + shape.value;
        let place = |query: usize| (query / span.new, query % span.new);
        for (query, wide) in which.clone().zip(queries.chunks_exact_mut(entry)) {
            let (head, token) = place(query);
            let width = shape.nope + shape.rope;
            let own = &q.values[(first + token) * q.stride + head * width..][..width];
            absorb(own, &expansion[head * head_rows * rank..][..shape.nope * rank], rank, scale, wide);
        }
        contexts[..which.len() * entry].fill(0.0);
        let mut running = [Running { largest: f32::NEG_INFINITY, total: 0.0 }; MOST_QUERIES];
        let last = which.clone().map(|query| span.past + place(query).1).max().unwrap_or(0);
        let bytes = dtype.matrix_bytes(1, entry as u64).get() as usize;
        for start in (0..=last).step_by(TILE) {
            let count = TILE.min(last + 1 - start);
            for (row, wide) in
                entries[start * bytes..].chunks_exact(bytes).zip(tile.chunks_exact_mut(entry)).take(count)
            {
                widen(dtype, row, wide);
            }
            for (index, query) in which.clone().enumerate() {
                let seen = (span.past + place(query).1 + 1).saturating_sub(start).min(count);
                attend(
                    &queries[index * entry..][..entry],
                    &tile[..seen * entry],
                    &mut scores[..seen],
                    &mut running[index],
                    &mut contexts[index * entry..][..rank],
                );
            }
        }
        for (index, query) in which.enumerate() {
            let (head, token) = place(query);
            let context = &contexts[index * entry..][..rank];
            let values = &expansion[(head * head_rows + shape.nope) * rank..][..shape.value * rank];
            let out = (self.at)(first + token, head);
            let inverse = 1.0 / running[index].total;
            for (out, row) in out.iter_mut().zip(values.chunks_exact(rank)) {
                *out = inverse * dot(row, context);
            }
        }
    }
}

/// A query as wide as an entry: (scale · Kᵀ·qₙ, scale · qᵣ).
#[inline(always)]
fn absorb(q: &[f32], keys: &[f32], rank: usize, scale: f32, wide: &mut [f32]) {
    let (latent, rotated) = wide.split_at_mut(rank);
    let (plain, turned) = q.split_at(q.len() - rotated.len());
    latent.fill(0.0);
    for (q, row) in plain.iter().zip(keys.chunks_exact(rank)) {
        let q = scale * q;
        latent.iter_mut().zip(row).for_each(|(latent, key)| *latent += q * key);
    }
    rotated.iter_mut().zip(turned).for_each(|(to, q)| *to = scale * q);
}

/// Adds a tile's entries to a query's running softmax and context.
#[inline(always)]
fn attend(q: &[f32], tile: &[f32], scores: &mut [f32], running: &mut Running, context: &mut [f32]) {
    if scores.is_empty() {
        return;
    }
    let mut largest = running.largest;
    for (score, entry) in scores.iter_mut().zip(tile.chunks_exact(q.len())) {
        *score = dot(q, entry);
        largest = largest.max(*score);
    }
    let kept = (running.largest - largest).exp();
    running.total *= kept;
    context.iter_mut().for_each(|value| *value *= kept);
    for (score, entry) in scores.iter().zip(tile.chunks_exact(q.len())) {
        let weight = (score - largest).exp();
        running.total += weight;
        context.iter_mut().zip(entry).for_each(|(value, latent)| *value += weight * latent);
    }
    running.largest = largest;
}

/// The product of two vectors, in sixteen interleaved partial sums.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (mut left, mut right) = (a.chunks_exact(16), b.chunks_exact(16));
    for (a, b) in (&mut left).zip(&mut right) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest: f32 = left.remainder().iter().zip(right.remainder()).map(|(a, b)| a * b).sum();
    sum(&lanes, |lane| lane) + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kv::narrow;
    use crate::runtime::{Path, affinity};

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect()
    }

    /// Attention with every key and value expanded, in f64.
    fn expanded(
        shape: &LatentShape,
        q: &[f32],
        expansion: &[f32],
        entries: &[f32],
        scale: f32,
        head: usize,
    ) -> Vec<f64> {
        let rank = shape.rank;
        let matrix = |row: usize| &expansion[(head * (shape.nope + shape.value) + row) * rank..][..rank];
        let product =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let scores: Vec<f64> = entries
            .chunks_exact(shape.entry())
            .map(|entry| {
                let (latent, key) = entry.split_at(rank);
                let plain: f64 = (0..shape.nope)
                    .map(|row| {
                        f64::from(q[row])
                            * Iterator::sum::<f64>(std::iter::once::<f64>(product(matrix(row), latent)))
                    })
                    .sum();
                let rotated: f64 = product(&q[shape.nope..], key);
                f64::from(scale) * (plain + rotated)
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        (0..shape.value)
            .map(|row| {
                let value = |entry: &[f32]| -> f64 { product(matrix(shape.nope + row), &entry[..rank]) };
                let weighted = scores.iter().zip(entries.chunks_exact(shape.entry()));
                weighted.map(|(score, entry)| (score - largest).exp() / total * value(entry)).sum()
            })
            .collect()
    }

    #[test]
    fn absorbed_attention_is_attention_to_expanded_keys_and_values() {
        for (shape, past, new) in [
            (LatentShape { heads: 3, nope: 8, rope: 4, rank: 20, value: 6 }, 0, 1),
            (LatentShape { heads: 4, nope: 16, rope: 8, rank: 32, value: 16 }, 37, 1),
            (LatentShape { heads: 2, nope: 5, rope: 2, rank: 17, value: 9 }, 3, 70),
        ] {
            let (entry, width) = (shape.entry(), shape.heads * (shape.nope + shape.rope));
            let capacity = past + new + 3;
            let spans = [KvSpan { sequence: 1, past, new }, KvSpan { sequence: 0, past: 0, new: 2 }];
            let (q, expansion) = (numbers((new + 2) * width, 3), numbers(shape.expansion(), 5));
            let entries = numbers(2 * capacity * entry, 9);
            for dtype in [DType::F32, DType::Bf16] {
                let bytes = dtype.matrix_bytes(1, entry as u64).get() as usize;
                let mut cache = vec![0u8; 2 * capacity * bytes];
                let mut kept = vec![0.0; entries.len()];
                for ((row, to), kept) in entries
                    .chunks_exact(entry)
                    .zip(cache.chunks_exact_mut(bytes))
                    .zip(kept.chunks_exact_mut(entry))
                {
                    narrow(dtype, row, to);
                    widen(dtype, to, kept);
                }
                for path in Path::supported() {
                    let cores = affinity::available_cores();
                    let pool =
                        Pool::new(&[cores[0], cores[cores.len() - 1]]).expect("our cores").with_path(path);
                    let mut scratch = Scratch::unaccounted(scratch_bytes(2, &shape)).expect("memory");
                    let mut out = vec![f32::NAN; (new + 2) * shape.heads * shape.value];
                    let stride = shape.heads * shape.value;
                    let operands = LatentOperands {
                        shape,
                        scale: 0.3,
                        expansion: &expansion,
                        q: StridedRows::new(&q, width),
                        cache: LatentCache { dtype, capacity, bytes: &cache },
                        spans: &spans,
                        out: StridedRowsMut::new(&mut out, stride),
                    };
                    latent_attention(&pool, operands, &mut scratch);
                    let mut row = 0;
                    for span in &spans {
                        for token in 0..span.new {
                            let seen =
                                &kept[span.sequence * capacity * entry..][..(span.past + token + 1) * entry];
                            for head in 0..shape.heads {
                                let q = &q[row * width + head * (shape.nope + shape.rope)..];
                                let wanted = expanded(
                                    &shape,
                                    &q[..shape.nope + shape.rope],
                                    &expansion,
                                    seen,
                                    0.3,
                                    head,
                                );
                                let got = &out[row * stride + head * shape.value..][..shape.value];
                                for (got, wanted) in got.iter().zip(wanted) {
                                    let error = (f64::from(*got) - wanted).abs();
                                    assert!(error < 1e-4, "{path} {dtype}: {got}, not {wanted}");
                                }
                            }
                            row += 1;
                        }
                    }
                }
            }
        }
    }
}
