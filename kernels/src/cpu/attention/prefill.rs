//! Prefill: several new tokens of one sequence. Blocks of queries meet blocks of keys in two matrix
//! products with an online softmax between them (FlashAttention, Dao et al. 2022,
//! arXiv:2205.14135).

use super::element::{Bf16, CacheElement, F32, Int2Groups, Int8Groups};
use super::operands::SeenRows;
use super::scores::Scores;
use crate::cpu::exponential::exponential;
use crate::cpu::strided::StridedRows;
use crate::cpu::tiles::avx2::{self, Avx2Tile, F32Columns};
use crate::cpu::tiles::avx512::{self, Avx512Tile, F32Step};
use crate::cpu::tiles::scales::TileScales;
use crate::cpu::vector::{maximum, sum};
use crate::runtime::{Disjoint, Path};
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::ops::Range;

/// Keys of a block. Its scores against a block of queries stay in the first-level cache.
pub(super) const KEYS: usize = 64;

/// Floats of working memory for `rows` query rows (tokens × heads of the group).
pub(super) fn floats(rows: usize, head_dim: usize) -> usize {
    rows * (KEYS + head_dim + 2) + 2 * KEYS * head_dim
}

/// Consecutive new tokens of one sequence, and the query heads that share one key/value head.
pub(super) struct PromptBlock<'a> {
    /// The keys and values, of which those of one head are used.
    pub(super) seen: SeenRows<'a>,
    pub(super) kv_head: usize,
    /// The position of the first token.
    pub(super) first: usize,
    pub(super) tokens: usize,
    /// Query heads that share the keys and values.
    pub(super) group: usize,
    /// The queries, from the first token's first head of the group on.
    pub(super) q: StridedRows<'a>,
    pub(super) scoring: Scores,
    /// The sink of each query head; empty where there are none.
    pub(super) sinks: &'a [f32],
    /// The result, the index of the first token's first head in it, and the distance of its rows.
    pub(super) out: &'a Disjoint<'a, f32>,
    pub(super) out_start: usize,
    pub(super) out_stride: usize,
}

impl PromptBlock<'_> {
    /// Computes the attention of all tokens and heads. `memory` has [`floats`] floats, `room` those
    /// of [`SeenRows::floats`] for [`KEYS`] positions where the tokens' keys are not in the cache.
    ///
    /// # Safety
    /// The CPU has the path's instructions, AVX2 at least. `seen` includes the tokens' own
    /// positions. The head size is a multiple of 16. Nobody else touches these values of `out`.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run(&self, path: Path, memory: &mut [f32], room: &mut [f32]) {
        let Self { seen, first, tokens, group, q, scoring, .. } = *self;
        let shape = seen.cache.shape();
        let head_dim = shape.head_dim;
        let rows = tokens * group;
        let (scores, memory) = memory.split_at_mut(rows * KEYS);
        let (sums, memory) = memory.split_at_mut(rows * head_dim);
        let (largest, memory) = memory.split_at_mut(rows);
        let (totals, memory) = memory.split_at_mut(rows);
        let (key_panels, value_panels) = memory.split_at_mut(KEYS * head_dim);
        sums.fill(0.0);
        largest.fill(f32::NEG_INFINITY);
        totals.fill(0.0);
        let wide = path >= Path::Avx512;
        let mut block =
            QueryBlock { wide, head_dim, tokens, q, scoring, first, scores, sums, largest, totals };
        let visible = first + tokens;
        for start in (scoring.first_seen(first)..visible).step_by(KEYS) {
            let positions = start..visible.min(start + KEYS);
            let (keys, values) = seen.block(self.kv_head, positions.clone(), bytemuck::cast_slice_mut(room));
            // SAFETY: whole rows of the cache; the buffers hold KEYS rows.
            unsafe {
                match shape.dtype {
                    DType::Bf16 => load::<Bf16>(head_dim, keys, values, key_panels, value_panels),
                    DType::Int8 => load::<Int8Groups>(head_dim, keys, values, key_panels, value_panels),
                    DType::Int2 => load::<Int2Groups>(head_dim, keys, values, key_panels, value_panels),
                    _ => load::<F32>(head_dim, keys, values, key_panels, value_panels),
                }
            }
            for head in 0..group {
                // SAFETY: the buffers hold these positions; the CPU has the promised features.
                unsafe { block.add(head, positions.clone(), key_panels, value_panels) };
            }
        }
        for head in 0..group {
            for token in 0..tokens {
                let row = head * tokens + token;
                let at = self.out_start + token * self.out_stride + head * head_dim;
                // SAFETY: the caller's promise.
                let out = unsafe { self.out.range(at, head_dim) };
                let inverse = match self.sinks.get(head) {
                    None => 1.0 / block.totals[row],
                    // Sums and their total are relative to the largest score. A sink above it would
                    // overflow relative to that, so both are scaled down to the sink.
                    Some(&sink) => {
                        let above = sink - block.largest[row];
                        let shrink = (-above.max(0.0)).exp();
                        shrink / (block.totals[row] * shrink + above.min(0.0).exp())
                    }
                };
                let sums = &block.sums[row * head_dim..][..head_dim];
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * inverse);
            }
        }
    }
}

/// A block of queries and its sums; its rows are `[head][token]`.
struct QueryBlock<'a> {
    /// Whether it uses 512-bit vectors.
    wide: bool,
    head_dim: usize,
    tokens: usize,
    q: StridedRows<'a>,
    scoring: Scores,
    first: usize,
    scores: &'a mut [f32],
    sums: &'a mut [f32],
    largest: &'a mut [f32],
    totals: &'a mut [f32],
}

impl QueryBlock<'_> {
    /// Adds the contribution of the keys at `positions` to one head's tokens.
    ///
    /// # Safety
    /// The CPU has AVX2 and FMA, and AVX-512 where `wide`. The buffers hold these positions, and
    /// the key buffer zeros beyond them up to a multiple of sixteen.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn add(&mut self, head: usize, positions: Range<usize>, key_panels: &[f32], value_panels: &[f32]) {
        let head_dim = self.head_dim;
        // Tokens before the first position see none of them.
        let seeing = positions.start.saturating_sub(self.first)..self.tokens;
        let most = if self.wide { avx512::TILE_ROWS } else { avx2::TILE_ROWS };
        for start in seeing.clone().step_by(most) {
            let count = most.min(seeing.end - start);
            // The number of keys that the last of these tokens sees.
            let keys = positions.len().min(self.first + start + count - positions.start);
            let row = head * self.tokens + start;
            let q = &self.q.values[start * self.q.stride + head * head_dim..];
            let scores = &mut self.scores[row * KEYS..][..count * KEYS];
            let (x, stride, y) = (q.as_ptr(), self.q.stride, scores.as_mut_ptr());
            let panels = key_panels.chunks_exact(16 * head_dim).take(keys.div_ceil(16));
            // SAFETY: `count` rows of q and of scores; panels of head_dim columns.
            unsafe { multiply(self.wide, count, head_dim, (x, stride), panels, (y, KEYS), false) };
            for (i, scores) in scores.chunks_exact_mut(KEYS).enumerate() {
                let token = self.first + start + i;
                let end = positions.len().min((token + 1).saturating_sub(positions.start));
                let from = self.scoring.first_seen(token).saturating_sub(positions.start).min(end);
                let row = row + i;
                let sums = &mut self.sums[row * head_dim..][..head_dim];
                weigh(
                    &mut scores[..keys],
                    from..end,
                    self.scoring,
                    &mut self.largest[row],
                    &mut self.totals[row],
                    sums,
                );
            }
            let sums = &mut self.sums[row * head_dim..][..count * head_dim];
            let (x, y) = (scores.as_ptr(), sums.as_mut_ptr());
            let panels = value_panels.chunks_exact(16 * KEYS).take(head_dim / 16);
            // SAFETY: `count` rows of weights and of sums; panels of `keys` positions.
            unsafe { multiply(self.wide, count, keys, (x, KEYS), panels, (y, head_dim), true) };
        }
    }
}

/// y (+)= x·w for `m` rows of x and panels of sixteen outputs, `[column][16]` each, with `k`
/// columns. x and y come with the distance of their rows.
///
/// # Safety
/// The CPU has AVX2 and FMA, and AVX-512 where `wide`. `m` is at most a tile's rows. x, the panels
/// and y hold these rows and columns, and nobody else touches y.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply<'a>(
    wide: bool,
    m: usize,
    k: usize,
    (x, x_stride): (*const f32, usize),
    panels: impl ExactSizeIterator<Item = &'a [f32]>,
    (y, y_stride): (*mut f32, usize),
    add: bool,
) {
    let (count, scales) = (panels.len(), TileScales::NONE);
    for (panel, w) in panels.enumerate().step_by(if wide { 2 } else { 1 }) {
        // SAFETY: the caller's promises; panels follow each other in memory.
        unsafe {
            let y = y.add(16 * panel);
            if wide {
                let (panel_bytes, ahead, w) = (4 * w.len(), std::ptr::null(), w.as_ptr().cast());
                Avx512Tile { x, x_stride, w, panel_bytes, steps: k, scales, add, y, y_stride, ahead }
                    .run::<F32Step>(m, 2.min(count - panel));
            } else {
                let w = F32Columns { start: w.as_ptr(), stride: 16 };
                Avx2Tile { x, x_stride, w, scales, y, y_stride, add }.run(m, k);
            }
        }
    }
}

/// Turns one row's products into weights relative to the largest score so far, with zeros outside
/// `visible`, and rescales the sums of earlier blocks.
#[target_feature(enable = "avx2,fma")]
fn weigh(
    scores: &mut [f32],
    visible: Range<usize>,
    scoring: Scores,
    largest: &mut f32,
    total: &mut f32,
    sums: &mut [f32],
) {
    scores[..visible.start].fill(0.0);
    scores[visible.end..].fill(0.0);
    let (seen, before) = (&mut scores[visible], *largest);
    if seen.is_empty() {
        return;
    }
    for score in seen.iter_mut() {
        *score *= scoring.scale;
    }
    scoring.cap(seen);
    *largest = maximum(seen, before);
    let correction = exponential(before - *largest);
    if correction != 1.0 {
        for sum in sums {
            *sum *= correction;
        }
    }
    let largest = *largest;
    for score in seen.iter_mut() {
        *score = exponential(*score - largest);
    }
    *total = *total * correction + sum(seen, |weight| weight);
}

/// Widens a block of keys into panels `[16 keys][head dim][16]`, with zeros beyond the last key up
/// to a multiple of sixteen, and a block of values into panels `[16 of the head's dims][KEYS][16]`.
///
/// # Safety
/// The CPU has AVX2 and F16C; the head size is a multiple of 8; the buffers hold [`KEYS`] rows.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<E: CacheElement>(
    head_dim: usize,
    keys: &[u8],
    values: &[u8],
    key_panels: &mut [f32],
    value_panels: &mut [f32],
) {
    let row_bytes = E::row_bytes(head_dim);
    let count = keys.len() / row_bytes;
    for (position, row) in values.chunks_exact(row_bytes).enumerate() {
        for from in (0..head_dim).step_by(8) {
            let out = &mut value_panels[from / 16 * 16 * KEYS + 16 * position + from % 16..][..8];
            // SAFETY: eight values in, eight out.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), E::load(row.as_ptr(), from)) };
        }
    }
    for first in (0..count.next_multiple_of(16)).step_by(8) {
        let panel = &mut key_panels[first / 16 * 16 * head_dim + first % 16..];
        for from in (0..head_dim).step_by(8) {
            let mut rows = [_mm256_setzero_ps(); 8];
            for (i, row) in rows.iter_mut().enumerate().take(count - first.min(count)) {
                // SAFETY: the row exists, and eight values from `from` on.
                *row = unsafe { E::load(keys[(first + i) * row_bytes..].as_ptr(), from) };
            }
            for (i, column) in transpose(rows).into_iter().enumerate() {
                let out = &mut panel[(from + i) * 16..][..8];
                // SAFETY: eight values.
                unsafe { _mm256_storeu_ps(out.as_mut_ptr(), column) };
            }
        }
    }
}

/// Turns eight rows of eight into eight columns.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [__m256; 8]) -> [__m256; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let (ab, cd) = (
        (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)),
        (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d)),
    );
    let (ef, gh) = (
        (_mm256_unpacklo_ps(e, f), _mm256_unpackhi_ps(e, f)),
        (_mm256_unpacklo_ps(g, h), _mm256_unpackhi_ps(g, h)),
    );
    let four = |x: __m256, y: __m256| (_mm256_shuffle_ps::<0x44>(x, y), _mm256_shuffle_ps::<0xee>(x, y));
    let ((p0, p1), (p2, p3)) = (four(ab.0, cd.0), four(ab.1, cd.1));
    let ((q0, q1), (q2, q3)) = (four(ef.0, gh.0), four(ef.1, gh.1));
    let low = |p: __m256, q: __m256| _mm256_permute2f128_ps::<0x20>(p, q);
    let high = |p: __m256, q: __m256| _mm256_permute2f128_ps::<0x31>(p, q);
    [
        low(p0, q0),
        low(p1, q1),
        low(p2, q2),
        low(p3, q3),
        high(p0, q0),
        high(p1, q1),
        high(p2, q2),
        high(p3, q3),
    ]
}
