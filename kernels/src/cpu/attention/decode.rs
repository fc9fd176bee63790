//! Decode: one new token of one sequence, every query head of a group against a range of positions.

use super::element::{Bf16, CacheElement, F32, Int2Groups, Int8Groups};
use super::scores::Scores;
use crate::cpu::exponential::exponential;
use crate::cpu::kv::KvShape;
use crate::cpu::vector::{maximum, sum};
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::ops::Range;

/// The number of positions whose scores are computed before their values are added. Their keys and
/// values (16 KiB each in bf16 at head size 128) stay in the second-level cache for all heads of
/// the group.
const BLOCK: usize = 64;

/// Floats of working memory for a group of `group` query heads.
pub(super) fn floats(group: usize) -> usize {
    group * BLOCK
}

/// The contribution of a range of positions to one query head: Σ e^(score − largest) · value, then
/// the largest score, then Σ e^(score − largest). It takes whole cache lines, because a vector
/// across two lines costs twice.
pub(super) struct PartialAttention;

impl PartialAttention {
    /// Floats of one head's partial result: the values and two more.
    pub(super) const fn floats(head_dim: usize) -> usize {
        (head_dim + 2).next_multiple_of(16)
    }

    /// Joins the partial results of consecutive ranges, each of `group` heads, to the final
    /// `[head][head dim]`. Where there are `sinks`, each head's has a score and no value.
    pub(super) fn join(parts: &[f32], group: usize, head_dim: usize, sinks: &[f32], out: &mut [f32]) {
        let floats = Self::floats(head_dim);
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let parts = || parts.chunks_exact(group * floats).map(|part| &part[head * floats..][..floats]);
            let sink = sinks.get(head).copied();
            let largest = parts().map(|part| part[head_dim]).chain(sink).fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = parts().map(|part| part[head_dim + 1] * (part[head_dim] - largest).exp()).sum();
            let total = total + sink.map_or(0.0, |sink| (sink - largest).exp());
            out.fill(0.0);
            for part in parts() {
                let weight = (part[head_dim] - largest).exp() / total;
                out.iter_mut().zip(part).for_each(|(out, value)| *out += weight * value);
            }
        }
    }
}

/// One new token's query heads that share a key/value head, over a range of positions.
pub(super) struct DecodeGroup<'a> {
    /// The keys of one head of the cache, and its values.
    pub(super) keys: &'a [u8],
    pub(super) values: &'a [u8],
    pub(super) positions: Range<usize>,
    /// `[head][head dim]`.
    pub(super) q: &'a [f32],
    pub(super) scoring: Scores,
    /// A [`PartialAttention`] result for each head.
    pub(super) out: &'a mut [f32],
    /// Working memory of [`floats`] floats.
    pub(super) scores: &'a mut [f32],
}

impl DecodeGroup<'_> {
    /// Writes the result of every head.
    ///
    /// # Safety
    /// The CPU has AVX2, FMA and F16C; keys and values are one head of a cache of this shape; the
    /// head size is a multiple of 16.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run(self, shape: KvShape) {
        // SAFETY: (all) the caller's promises.
        unsafe {
            match shape.dtype {
                DType::Bf16 => self.run_as::<Bf16>(shape.head_dim),
                DType::Int8 => self.run_as::<Int8Groups>(shape.head_dim),
                DType::Int2 => self.run_as::<Int2Groups>(shape.head_dim),
                _ => self.run_as::<F32>(shape.head_dim),
            }
        }
    }

    /// # Safety
    /// As [`DecodeGroup::run`], for a cache of this format.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run_as<E: CacheElement>(self, head_dim: usize) {
        let Self { keys, values, positions, q, scoring, out, scores } = self;
        let heads = q.len() / head_dim;
        let floats = PartialAttention::floats(head_dim);
        for out in out.chunks_exact_mut(floats) {
            out.fill(0.0);
            out[head_dim] = f32::NEG_INFINITY;
        }
        let row_bytes = E::row_bytes(head_dim);
        for start in positions.clone().step_by(BLOCK) {
            let count = BLOCK.min(positions.end - start);
            let block = start * row_bytes..(start + count) * row_bytes;
            let (keys, values) = (&keys[block.clone()], &values[block]);
            let mut head = 0;
            while head < heads {
                let part = HeadBlock {
                    keys,
                    values,
                    q: &q[head * head_dim..],
                    scoring,
                    // The first heads of a block prefetch the next block.
                    fetch: head == 0,
                    scores: &mut scores[head * BLOCK..],
                    out: &mut out[head * floats..],
                };
                // SAFETY: `count` rows of keys and values, and the promised head size. Eight chains
                // cover the latency of two FMA units; a single head is bound by memory.
                head += unsafe {
                    match heads - head {
                        1 => part.heads::<E, 1, 4>(head_dim, count),
                        2 | 3 => part.heads::<E, 2, 4>(head_dim, count),
                        _ => part.heads::<E, 4, 2>(head_dim, count),
                    }
                };
            }
        }
    }
}

/// One block of positions for some heads of the group.
struct HeadBlock<'a> {
    keys: &'a [u8],
    values: &'a [u8],
    q: &'a [f32],
    scoring: Scores,
    fetch: bool,
    scores: &'a mut [f32],
    out: &'a mut [f32],
}

impl HeadBlock<'_> {
    /// Adds the contribution of `count` positions to H heads; returns H.
    ///
    /// # Safety
    /// As [`DecodeGroup::run`]; the slices begin at the first of the H heads.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads<E: CacheElement, const H: usize, const R: usize>(
        self,
        head_dim: usize,
        count: usize,
    ) -> usize {
        // SAFETY: (both) the caller's promises.
        unsafe { score::<E, H, R>(head_dim, self.keys, self.q, self.scoring.scale, self.scores, self.fetch) };
        let outs = self.out.chunks_exact_mut(PartialAttention::floats(head_dim));
        for (scores, out) in self.scores.chunks_mut(BLOCK).zip(outs).take(H) {
            self.scoring.cap(&mut scores[..count]);
            weigh(&mut scores[..count], &mut out[..head_dim + 2]);
        }
        // SAFETY: as above.
        unsafe { add::<E, H, R>(head_dim, count, self.values, self.scores, self.out, self.fetch) };
        H
    }
}

/// Prefetches the bytes of the next block that correspond to `from..from + count` of this block,
/// into the second-level cache. With a shorter distance, memory idles while weights are computed;
/// that ran at half the rate.
#[inline(always)]
fn fetch_next(block: &[u8], from: usize, count: usize) {
    for line in (from..from + count).step_by(64) {
        // SAFETY: a prefetch never faults, so any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(block.as_ptr().wrapping_add(block.len() + line).cast()) };
    }
}

/// Computes the scores of all keys for H heads: `scores[head · BLOCK + position]`.
///
/// # Safety
/// As [`DecodeGroup::run`]; `keys` has at most [`BLOCK`] rows.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score<E: CacheElement, const H: usize, const R: usize>(
    head_dim: usize,
    keys: &[u8],
    q: &[f32],
    scale: f32,
    scores: &mut [f32],
    fetch: bool,
) {
    let row_bytes = E::row_bytes(head_dim);
    let rows = keys.len() / row_bytes;
    for first in (0..rows).step_by(R) {
        if fetch {
            fetch_next(keys, first * row_bytes, R * row_bytes);
        }
        let mut row = [keys.as_ptr(); R];
        for i in 0..R.min(rows - first) {
            row[i] = keys[(first + i) * row_bytes..].as_ptr();
        }
        let mut sums = [[_mm256_setzero_ps(); R]; H];
        for at in (0..head_dim).step_by(8) {
            for i in 0..R {
                // SAFETY: each row and each head of q has head_dim values, so eight from `at` on.
                unsafe {
                    let key = E::load(row[i], at);
                    for (head, sums) in sums.iter_mut().enumerate() {
                        let q = _mm256_loadu_ps(q.as_ptr().add(head * head_dim + at));
                        sums[i] = _mm256_fmadd_ps(key, q, sums[i]);
                    }
                }
            }
        }
        for (head, sums) in sums.into_iter().enumerate() {
            for i in (0..R).step_by(2) {
                let pairs = _mm256_hadd_ps(sums[i], sums[i + 1]);
                let two = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
                let two = _mm_mul_ps(_mm_hadd_ps(two, two), _mm_set1_ps(scale));
                let at = head * BLOCK + first + i;
                scores[at] = _mm_cvtss_f32(two);
                scores[at + 1] = _mm_cvtss_f32(_mm_movehdup_ps(two));
            }
        }
    }
}

/// Turns a block's scores into weights relative to the largest score so far, and rescales the sums
/// of earlier blocks.
#[target_feature(enable = "avx2,fma,f16c")]
fn weigh(scores: &mut [f32], out: &mut [f32]) {
    let Some((values, [before, total])) = out.split_last_chunk_mut() else { return };
    let largest = maximum(scores, *before);
    let correction = exponential(*before - largest);
    if correction != 1.0 {
        for value in values {
            *value *= correction;
        }
    }
    for score in scores.iter_mut() {
        *score = exponential(*score - largest);
    }
    *before = largest;
    *total = *total * correction + sum(scores, |weight| weight);
}

/// Adds the weighted values of H heads to their partial results. It takes R rows at a time in the
/// order of memory, so that the running sums pass through the first-level cache once per R rows.
///
/// # Safety
/// As [`DecodeGroup::run`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add<E: CacheElement, const H: usize, const R: usize>(
    head_dim: usize,
    count: usize,
    values: &[u8],
    weights: &[f32],
    out: &mut [f32],
    fetch: bool,
) {
    let row_bytes = E::row_bytes(head_dim);
    let floats = PartialAttention::floats(head_dim);
    let (values, out) = (&values[..count * row_bytes], &mut out[..(H - 1) * floats + head_dim]);
    for first in (0..count).step_by(R) {
        if fetch {
            fetch_next(values, first * row_bytes, R * row_bytes);
        }
        let mut weight = [[_mm256_setzero_ps(); R]; H];
        let mut row = [values.as_ptr(); R];
        for i in 0..R.min(count - first) {
            row[i] = values[(first + i) * row_bytes..].as_ptr();
            for (head, weight) in weight.iter_mut().enumerate() {
                weight[i] = _mm256_set1_ps(weights[head * BLOCK + first + i]);
            }
        }
        for at in (0..head_dim).step_by(8) {
            // SAFETY: each row and each head of `out` has head_dim values, so eight from `at` on. A
            // row beyond the last is the first row, with weight zero.
            unsafe {
                let mut value = [_mm256_setzero_ps(); R];
                for i in 0..R {
                    value[i] = E::load(row[i], at);
                }
                for (head, weight) in weight.iter().enumerate() {
                    let out = out.as_mut_ptr().add(head * floats + at);
                    let mut sum = _mm256_loadu_ps(out);
                    for i in 0..R {
                        sum = _mm256_fmadd_ps(weight[i], value[i], sum);
                    }
                    _mm256_storeu_ps(out, sum);
                }
            }
        }
    }
}
