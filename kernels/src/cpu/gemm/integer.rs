//! Integer weights times rows of x, multiplied as 16-bit integers with 256-bit vectors.
//!
//! Widening every weight to f32 costs more instructions than the product itself: that ran at 16
//! GB/s per core where memory gives 30. So x is rounded to 16-bit integers, with a scale for each
//! group of 32. The error is at most 2⁻¹⁶ of the group's largest value, less than that of bf16
//! activations. One multiply-add then takes sixteen pairs. Sums of a group are exact: 32·127·32767
//! < 2³¹.

use super::int16_input::{GROUP_FLOATS, Int16Rows, group_bytes};
use super::vnni;
use crate::cpu::tiles::avx2::{Fetch, TILE_ROWS};
use crate::cpu::weights::{GROUP_COLUMNS, PANEL};
use crate::runtime::Path;
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::ops::Range;

/// The instructions that multiply; their results are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntegerInstructions {
    Avx2,
    /// AVX-512 F, BW, VL and VNNI (see `vnni`).
    Vnni,
}

impl IntegerInstructions {
    /// The instructions of a path. AVX-512 without VNNI (Skylake's) is no faster here than AVX2.
    pub(super) fn for_path(path: Path) -> Self {
        match path {
            Path::Avx512 | Path::Avx512Bf16 | Path::Amx if is_x86_feature_detected!("avx512vnni") => {
                Self::Vnni
            }
            _ => Self::Avx2,
        }
    }

    /// The most rows of one tile.
    pub(super) fn tile_rows(self) -> usize {
        match self {
            Self::Avx2 => TILE_ROWS,
            Self::Vnni => vnni::TILE_ROWS,
        }
    }
}

/// One tile of a product with a full panel of `int8` or `int4`: y (+)= x·w.
pub(super) struct IntegerTile<'a> {
    pub(super) x: Int16Rows<'a>,
    /// Rows of x, at most [`IntegerInstructions::tile_rows`].
    pub(super) rows: Range<usize>,
    /// The bytes of the whole panel.
    pub(super) panel: &'a [u8],
    /// Columns, which start on a group. Where they do not start at 0, the products are added to y.
    pub(super) columns: Range<usize>,
    /// The first row's part of the panel in y, and the distance of y's rows.
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
    /// What to prefetch meanwhile.
    pub(super) fetch: Fetch,
}

impl IntegerTile<'_> {
    /// Computes the tile.
    ///
    /// # Safety
    /// The CPU has the instructions, and AVX2, FMA and F16C. x has these rows; y has them too, and
    /// nobody else touches them.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run(&self, instructions: IntegerInstructions, dtype: DType) {
        let bytes = group_bytes(dtype);
        let groups = self.columns.start / GROUP_COLUMNS..self.columns.end.div_ceil(GROUP_COLUMNS);
        let panel = &self.panel[groups.start * bytes..groups.end * bytes];
        let (x, y, y_stride, fetch) = (self.x, self.y, self.y_stride, self.fetch);
        if instructions == IntegerInstructions::Vnni {
            let tile = vnni::VnniTile { x, row: self.rows.start, groups, y, y_stride, fetch };
            // SAFETY: the caller's promises.
            return unsafe { tile.run(dtype, self.rows.len(), panel) };
        }
        let tile = Avx2IntegerTile { x, row: self.rows.start, first: groups.start, y, y_stride, fetch };
        // SAFETY: the caller's promises.
        unsafe {
            match dtype {
                DType::Int8 => tile.dispatch::<false>(self.rows.len(), panel),
                _ => tile.dispatch::<true>(self.rows.len(), panel),
            }
        }
    }
}

/// The operands of one tile besides the weights.
struct Avx2IntegerTile<'a> {
    x: Int16Rows<'a>,
    row: usize,
    /// The first group.
    first: usize,
    y: *mut f32,
    y_stride: usize,
    fetch: Fetch,
}

impl Avx2IntegerTile<'_> {
    /// # Safety
    /// As [`IntegerTile::run`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn dispatch<const INT4: bool>(&self, rows: usize, panel: &[u8]) {
        debug_assert!(rows <= TILE_ROWS);
        // SAFETY: (all) the caller's promises.
        unsafe {
            match rows {
                0 => {}
                1 => self.rows::<1, INT4>(panel),
                2 => self.rows::<2, INT4>(panel),
                3 => self.rows::<3, INT4>(panel),
                4 => self.rows::<4, INT4>(panel),
                5 => self.rows::<5, INT4>(panel),
                _ => self.rows::<6, INT4>(panel),
            }
        }
    }

    /// # Safety
    /// As [`IntegerTile::run`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn rows<const M: usize, const INT4: bool>(&self, panel: &[u8]) {
        let x: [_; M] = std::array::from_fn(|row| self.x.row(self.row + row));
        let mut sums = [[_mm256_setzero_ps(); 2]; M];
        // SAFETY: y has these rows of sixteen values, which belong to this tile.
        let y = |row: usize, half: usize| unsafe { self.y.add(row * self.y_stride + 8 * half) };
        if self.first > 0 {
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: as above.
                *sums = std::array::from_fn(|half| unsafe { _mm256_loadu_ps(y(row, half)) });
            }
        }
        let bytes = group_bytes(if INT4 { DType::Int4 } else { DType::Int8 });
        for (group, weights) in panel.chunks_exact(bytes).enumerate() {
            (0..bytes).step_by(64).for_each(|line| self.fetch.line(weights.as_ptr(), line));
            let group = self.first + group;
            // SAFETY: (all blocks) x has this group: 16 pairs, a scale and an offset in each row;
            // the weights have 32 bytes of scales and then the group's values.
            unsafe {
                let mut pairs = [std::ptr::null(); M];
                let mut products = [[_mm256_setzero_si256(); 2]; M];
                for row in 0..M {
                    pairs[row] = x[row].0.add(group * GROUP_FLOATS);
                    if INT4 {
                        products[row] = [_mm256_set1_epi32(*x[row].2.add(group)); 2];
                    }
                }
                let values = weights.as_ptr().add(2 * PANEL);
                if INT4 {
                    int4_group(values, &pairs, &mut products);
                } else {
                    int8_group(values, &pairs, &mut products);
                }
                let low = _mm256_cvtph_ps(_mm_loadu_si128(weights.as_ptr().cast()));
                let high = _mm256_cvtph_ps(_mm_loadu_si128(weights.as_ptr().add(16).cast()));
                for row in 0..M {
                    let scale = _mm256_broadcast_ss(&*x[row].1.add(group));
                    let [a, b] = products[row];
                    let (low, high) = (_mm256_mul_ps(scale, low), _mm256_mul_ps(scale, high));
                    sums[row][0] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(a), low, sums[row][0]);
                    sums[row][1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(b), high, sums[row][1]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            // SAFETY: as above.
            (0..2).for_each(|half| unsafe { _mm256_storeu_ps(y(row, half), sums[half]) });
        }
    }
}

/// Adds the products of one pair of columns, widened to 16 bits: `low` is rows 0–7, `high` rows
/// 8–15.
///
/// # Safety
/// Each of `pairs` has a pair `at`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_pair<const M: usize>(
    low: __m256i,
    high: __m256i,
    pairs: &[*const i32; M],
    at: usize,
    products: &mut [[__m256i; 2]; M],
) {
    for (pairs, products) in pairs.iter().zip(products) {
        // SAFETY: the caller's promise.
        let pair = unsafe { _mm256_set1_epi32(*pairs.add(at)) };
        products[0] = _mm256_add_epi32(products[0], _mm256_madd_epi16(low, pair));
        products[1] = _mm256_add_epi32(products[1], _mm256_madd_epi16(high, pair));
    }
}

/// # Safety
/// `values` has 16 pairs of columns, 32 bytes each; each of `pairs` as many.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn int8_group<const M: usize>(
    values: *const u8,
    pairs: &[*const i32; M],
    products: &mut [[__m256i; 2]; M],
) {
    for pair in 0..GROUP_COLUMNS / 2 {
        // SAFETY: inside the group.
        unsafe {
            let low = _mm256_cvtepi8_epi16(_mm_loadu_si128(values.add(32 * pair).cast()));
            let high = _mm256_cvtepi8_epi16(_mm_loadu_si128(values.add(32 * pair + 16).cast()));
            add_pair(low, high, pairs, pair, products);
        }
    }
}

/// # Safety
/// `values` has 4 × 16 words of eight nibbles; each of `pairs` 16 pairs.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn int4_group<const M: usize>(
    values: *const u8,
    pairs: &[*const i32; M],
    products: &mut [[__m256i; 2]; M],
) {
    let mask = _mm256_set1_epi16(15);
    for eight in 0..GROUP_COLUMNS / 8 {
        // SAFETY: inside the group. In each word, nibbles i and i + 4 are columns 2i and 2i + 1.
        unsafe {
            let low = _mm256_loadu_si256(values.add(64 * eight).cast());
            let high = _mm256_loadu_si256(values.add(64 * eight + 32).cast());
            let at = 4 * eight;
            add_pair(_mm256_and_si256(low, mask), _mm256_and_si256(high, mask), pairs, at, products);
            let (a, b) = (_mm256_srli_epi16::<4>(low), _mm256_srli_epi16::<4>(high));
            add_pair(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask), pairs, at + 1, products);
            let (a, b) = (_mm256_srli_epi16::<8>(low), _mm256_srli_epi16::<8>(high));
            add_pair(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask), pairs, at + 2, products);
            let (a, b) = (_mm256_srli_epi16::<12>(low), _mm256_srli_epi16::<12>(high));
            add_pair(a, b, pairs, at + 3, products);
        }
    }
}
