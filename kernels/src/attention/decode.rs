//! One new token of one sequence: every query head of a group against a range of positions.

use super::Scores;
use super::element::{Brain, Bytes, Element, Quarters, Single};
use crate::KvShape;
use crate::exponential::exponential;
use crate::vector::{maximum, sum};
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::ops::Range;

/// Positions whose scores are kept before their values are added: their keys and values (16 KiB each in bf16 at
/// head size 128) stay in the second-level cache for all heads of the group.
const BLOCK: usize = 64;

/// Floats of working memory for a group of `group` query heads.
pub(super) fn floats(group: usize) -> usize {
    group * BLOCK
}

/// What a range of positions contributes to one query head: Σ e^(score − largest) · value, then the largest score,
/// then Σ e^(score − largest). Whole cache lines: a vector across two of them costs twice.
pub(super) struct Partial;

impl Partial {
    /// Floats of one head's partial result: the values and two more.
    pub(super) const fn floats(head_dim: usize) -> usize {
        (head_dim + 2).next_multiple_of(16)
    }

    /// Joins the partial results of consecutive ranges, each of `group` heads, to the final `[head][head dim]`.
    pub(super) fn join(parts: &[f32], group: usize, head_dim: usize, out: &mut [f32]) {
        let floats = Self::floats(head_dim);
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let parts = || parts.chunks_exact(group * floats).map(|part| &part[head * floats..][..floats]);
            let largest = parts().map(|part| part[head_dim]).fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = parts().map(|part| part[head_dim + 1] * (part[head_dim] - largest).exp()).sum();
            out.fill(0.0);
            for part in parts() {
                let weight = (part[head_dim] - largest).exp() / total;
                out.iter_mut().zip(part).for_each(|(out, value)| *out += weight * value);
            }
        }
    }
}

/// Writes the [`Partial`] results of every head in `q` (`[head][head dim]`) over `positions` to `out`.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C; `keys` and `values` are one head of the cache; the head size is a multiple of 16.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn decode(
    shape: KvShape,
    keys: &[u8],
    values: &[u8],
    positions: Range<usize>,
    q: &[f32],
    scoring: Scores,
    out: &mut [f32],
    scores: &mut [f32],
) {
    // SAFETY: (both) the caller's promises.
    unsafe {
        match shape.dtype {
            DType::Bf16 => group::<Brain>(shape.head_dim, keys, values, positions, q, scoring, out, scores),
            DType::Int8 => group::<Bytes>(shape.head_dim, keys, values, positions, q, scoring, out, scores),
            DType::Int2 => {
                group::<Quarters>(shape.head_dim, keys, values, positions, q, scoring, out, scores)
            }
            _ => group::<Single>(shape.head_dim, keys, values, positions, q, scoring, out, scores),
        }
    }
}

/// # Safety
/// As [`decode`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn group<E: Element>(
    head_dim: usize,
    keys: &[u8],
    values: &[u8],
    positions: Range<usize>,
    q: &[f32],
    scoring: Scores,
    out: &mut [f32],
    scores: &mut [f32],
) {
    let heads = q.len() / head_dim;
    let floats = Partial::floats(head_dim);
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
            let part = Part {
                keys,
                values,
                q: &q[head * head_dim..],
                scoring,
                // The first heads of a block fetch the next one.
                fetch: head == 0,
                scores: &mut scores[head * BLOCK..],
                out: &mut out[head * floats..],
            };
            // SAFETY: `count` rows of keys and values; head size as promised. Eight chains cover the latency of two FMA
            // units; one head is bound by memory.
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

/// One block of positions for some heads of the group.
struct Part<'a> {
    keys: &'a [u8],
    values: &'a [u8],
    q: &'a [f32],
    scoring: Scores,
    fetch: bool,
    scores: &'a mut [f32],
    out: &'a mut [f32],
}

impl Part<'_> {
    /// Adds what `count` positions contribute to H heads; returns H.
    ///
    /// # Safety
    /// As [`decode`]; the slices begin at the first of the H heads.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn heads<E: Element, const H: usize, const R: usize>(
        self,
        head_dim: usize,
        count: usize,
    ) -> usize {
        // SAFETY: (both) the caller's promises.
        unsafe { score::<E, H, R>(head_dim, self.keys, self.q, self.scoring.scale, self.scores, self.fetch) };
        let outs = self.out.chunks_exact_mut(Partial::floats(head_dim));
        for (scores, out) in self.scores.chunks_mut(BLOCK).zip(outs).take(H) {
            self.scoring.cap(&mut scores[..count]);
            weigh(&mut scores[..count], &mut out[..head_dim + 2]);
        }
        // SAFETY: as above.
        unsafe { add::<E, H, R>(head_dim, count, self.values, self.scores, self.out, self.fetch) };
        H
    }
}

/// Asks for the bytes of the next block that correspond to `from..from + count` of this one. A block ahead, and into the
/// second-level cache: with shorter distances memory idles while weights are computed (measured: half the rate).
#[inline(always)]
fn fetch_next(block: &[u8], from: usize, count: usize) {
    for line in (from..from + count).step_by(64) {
        // SAFETY: a prefetch never faults, and a wrapping address is just a number.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(block.as_ptr().wrapping_add(block.len() + line).cast()) };
    }
}

/// Scores of all the keys for H heads: `scores[head · BLOCK + position]`.
///
/// # Safety
/// As [`decode`]; `keys` has at most [`BLOCK`] rows.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn score<E: Element, const H: usize, const R: usize>(
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
                // SAFETY: each row has head_dim values, of which eight from `at` on; so has each head of q.
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

/// Turns a block's scores into weights relative to the largest score so far, and rescales what was summed before.
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

/// Adds the weighted values of H heads to their partial results, R rows at a time: in the order of memory, with
/// the running sums passing through the first-level cache once per R rows.
///
/// # Safety
/// As [`decode`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add<E: Element, const H: usize, const R: usize>(
    head_dim: usize,
    count: usize,
    values: &[u8],
    weights: &[f32],
    out: &mut [f32],
    fetch: bool,
) {
    let row_bytes = E::row_bytes(head_dim);
    let floats = Partial::floats(head_dim);
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
            // SAFETY: each row has head_dim values, of which eight from `at` on; so has each head of `out`. Rows beyond the last are the first again, with weight zero.
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
