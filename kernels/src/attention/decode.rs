//! One new token of one sequence: every query head of a group against a range of positions.

use super::element::{Brain, Element, Single};
use crate::KvShape;
use crate::exponential::exponential;
use crate::tile::prefetch;
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

/// What a range of positions contributes to one query head: its largest score, Σ e^(score − largest), and
/// Σ e^(score − largest) · value.
pub(super) struct Partial;

impl Partial {
    /// Floats of one head's partial result: two and the values.
    pub(super) const fn floats(head_dim: usize) -> usize {
        head_dim + 2
    }

    /// Joins the partial results of consecutive ranges, each of `group` heads, to the final `[head][head dim]`.
    pub(super) fn join(parts: &[f32], group: usize, head_dim: usize, out: &mut [f32]) {
        let floats = Self::floats(head_dim);
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let parts = || parts.chunks_exact(group * floats).map(|part| &part[head * floats..][..floats]);
            let largest = parts().map(|part| part[0]).fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = parts().map(|part| part[1] * (part[0] - largest).exp()).sum();
            out.fill(0.0);
            for part in parts() {
                let weight = (part[0] - largest).exp() / total;
                out.iter_mut().zip(&part[2..]).for_each(|(out, value)| *out += weight * value);
            }
        }
    }
}

/// Writes the [`Partial`] results of every head in `q` (`[head][head dim]`) over `positions` to `out`.
///
/// # Safety
/// The CPU has AVX2 and FMA; `keys` and `values` are one head of the cache; the head size is a multiple of 16.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn decode(
    shape: KvShape,
    keys: &[u8],
    values: &[u8],
    positions: Range<usize>,
    q: &[f32],
    scale: f32,
    out: &mut [f32],
    scores: &mut [f32],
) {
    // SAFETY: (both) the caller's promises.
    unsafe {
        match shape.dtype {
            DType::Bf16 => group::<Brain>(shape.head_dim, keys, values, positions, q, scale, out, scores),
            _ => group::<Single>(shape.head_dim, keys, values, positions, q, scale, out, scores),
        }
    }
}

/// # Safety
/// As [`decode`].
#[target_feature(enable = "avx2,fma")]
unsafe fn group<E: Element>(
    head_dim: usize,
    keys: &[u8],
    values: &[u8],
    positions: Range<usize>,
    q: &[f32],
    scale: f32,
    out: &mut [f32],
    scores: &mut [f32],
) {
    let heads = q.len() / head_dim;
    let floats = Partial::floats(head_dim);
    for out in out.chunks_exact_mut(floats) {
        out.fill(0.0);
        out[0] = f32::NEG_INFINITY;
    }
    let row_bytes = head_dim * E::BYTES;
    for start in positions.clone().step_by(BLOCK) {
        let count = BLOCK.min(positions.end - start);
        let block = start * row_bytes..(start + count) * row_bytes;
        let (keys, values) = (&keys[block.clone()], &values[block]);
        for head in (0..heads).step_by(2) {
            let two = head + 1 < heads;
            let q = &q[head * head_dim..][..if two { 2 } else { 1 } * head_dim];
            let scores = &mut scores[head * BLOCK..];
            // SAFETY: (all) `count` rows of keys and values; head size as promised.
            unsafe {
                if two {
                    score::<E, 2>(head_dim, keys, values, q, scale, scores, head == 0);
                } else {
                    score::<E, 1>(head_dim, keys, values, q, scale, scores, head == 0);
                }
            }
            for (scores, out) in
                scores.chunks_mut(BLOCK).zip(out.chunks_exact_mut(floats).skip(head)).take(q.len() / head_dim)
            {
                weigh(&mut scores[..count], out);
            }
            let out = &mut out[head * floats..];
            // SAFETY: as above.
            unsafe {
                if two {
                    add::<E, 2, 4>(head_dim, count, values, scores, out);
                } else {
                    add::<E, 1, 4>(head_dim, count, values, scores, out);
                }
            }
        }
    }
}

/// Scores of all the keys for H heads: `scores[head · BLOCK + position]`.
///
/// # Safety
/// As [`decode`]; `keys` and `values` have equally many rows, at most [`BLOCK`].
#[target_feature(enable = "avx2,fma")]
unsafe fn score<E: Element, const H: usize>(
    head_dim: usize,
    keys: &[u8],
    values: &[u8],
    q: &[f32],
    scale: f32,
    scores: &mut [f32],
    fetch: bool,
) {
    let row_bytes = head_dim * E::BYTES;
    let rows = keys.len() / row_bytes;
    for first in (0..rows).step_by(4) {
        let here = first * row_bytes;
        if fetch {
            for line in (0..4 * row_bytes).step_by(64) {
                prefetch(keys.as_ptr(), here + line);
                prefetch(values.as_ptr(), here + line);
            }
        }
        // Four rows at a time; where fewer are left, the last one again.
        let row: [_; 4] = std::array::from_fn(|i| keys[(first + i).min(rows - 1) * row_bytes..].as_ptr());
        let mut sums = [[_mm256_setzero_ps(); 4]; H];
        for at in (0..head_dim).step_by(8) {
            for i in 0..4 {
                // SAFETY: each row has head_dim values, of which eight from `at` on; so has each head of q.
                unsafe {
                    let key = E::load(row[i].add(at * E::BYTES));
                    for (head, sums) in sums.iter_mut().enumerate() {
                        let q = _mm256_loadu_ps(q.as_ptr().add(head * head_dim + at));
                        sums[i] = _mm256_fmadd_ps(key, q, sums[i]);
                    }
                }
            }
        }
        for (head, [a, b, c, d]) in sums.into_iter().enumerate() {
            let pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            let four = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let mut four_scores = [0.0; 4];
            // SAFETY: room for four values.
            unsafe { _mm_storeu_ps(four_scores.as_mut_ptr(), _mm_mul_ps(four, _mm_set1_ps(scale))) };
            let count = 4.min(rows - first);
            scores[head * BLOCK + first..][..count].copy_from_slice(&four_scores[..count]);
        }
    }
}

/// Turns a block's scores into weights relative to the largest score so far, and rescales what was summed before.
#[target_feature(enable = "avx2,fma")]
fn weigh(scores: &mut [f32], out: &mut [f32]) {
    let largest = scores.iter().fold(out[0], |a, &b| if b > a { b } else { a });
    let correction = exponential(out[0] - largest);
    if correction != 1.0 {
        out[1..].iter_mut().for_each(|out| *out *= correction);
    }
    scores.iter_mut().for_each(|score| *score = exponential(*score - largest));
    out[0] = largest;
    out[1] += scores.iter().sum::<f32>();
}

/// Adds the weighted values of H heads to their partial results, V vectors of eight at a time.
///
/// # Safety
/// As [`decode`]; `values` has `count` rows, each of the H heads as many weights.
#[target_feature(enable = "avx2,fma")]
unsafe fn add<E: Element, const H: usize, const V: usize>(
    head_dim: usize,
    count: usize,
    values: &[u8],
    weights: &[f32],
    out: &mut [f32],
) {
    debug_assert!(values.len() >= count * head_dim * E::BYTES && weights.len() >= (H - 1) * BLOCK + count);
    let floats = Partial::floats(head_dim);
    let whole = head_dim / (8 * V) * (8 * V);
    for from in (0..whole).step_by(8 * V) {
        // SAFETY: the dimensions from..from + 8·V exist.
        unsafe { add_part::<E, H, V>(head_dim, count, values, weights, out, floats, from) };
    }
    for from in (whole..head_dim).step_by(8) {
        // SAFETY: the dimensions from..from + 8 exist.
        unsafe { add_part::<E, H, 1>(head_dim, count, values, weights, out, floats, from) };
    }
}

/// # Safety
/// As [`add`]; the dimensions `from..from + 8·V` exist.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_part<E: Element, const H: usize, const V: usize>(
    head_dim: usize,
    count: usize,
    values: &[u8],
    weights: &[f32],
    out: &mut [f32],
    floats: usize,
    from: usize,
) {
    let mut sums = [[_mm256_setzero_ps(); V]; H];
    for position in 0..count {
        // SAFETY: the row and its dimensions exist; so does the weight.
        unsafe {
            let row = values.as_ptr().add((position * head_dim + from) * E::BYTES);
            let value: [_; V] = std::array::from_fn(|i| E::load(row.add(8 * i * E::BYTES)));
            for (head, sums) in sums.iter_mut().enumerate() {
                let weight = _mm256_broadcast_ss(&*weights.as_ptr().add(head * BLOCK + position));
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = _mm256_fmadd_ps(weight, value, *sum);
                }
            }
        }
    }
    for (head, sums) in sums.into_iter().enumerate() {
        let out = &mut out[head * floats + 2 + from..][..8 * V];
        for (out, sum) in out.chunks_exact_mut(8).zip(sums) {
            // SAFETY: eight values.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_add_ps(sum, _mm256_loadu_ps(out.as_ptr()))) };
        }
    }
}
