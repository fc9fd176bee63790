//! Integer weights times rows of x, multiplied as 16-bit integers.
//!
//! Widening every weight to f32 costs more instructions than the product itself: measured 16 GB/s a core
//! where memory gives 30. So x is rounded to 16-bit integers instead, each group of 32 with a scale of its own
//! (an error of at most 2⁻¹⁶ of the group's largest value, below that of bf16 activations), and one
//! multiply-add takes sixteen pairs. Sums of a group are exact: 32·127·32767 < 2³¹.

use super::vnni;
use crate::tile::{Fetch, TILE_ROWS};
use crate::weights::GROUP_COLUMNS;
use crate::{PANEL, Path, Pool, disjoint::Disjoint};
use hwprofiles::DType;
use std::arch::x86_64::*;
use std::ops::Range;

/// Largest magnitude of a rounded x.
const LIMIT: f32 = 32767.0;
/// 3·2²²: a float of this size has no bits below one.
const ROUNDING: f32 = 12_582_912.0;
/// All bits of a float but its sign.
const SIGNLESS: u32 = 0x7fff_ffff;
/// Floats that hold one rounded group: 32 integers of 16 bits.
pub(super) const GROUP_FLOATS: usize = GROUP_COLUMNS / 2;
/// From so many values on, x is rounded by the whole team.
const SHARED: usize = 1 << 14;

/// x rounded to integers. A row is its groups, then the scale of each, then of each −8·Σx as an i32 (`int4` stores
/// q + 8).
#[derive(Clone, Copy)]
pub(super) struct Rounded<'a> {
    rows: &'a [f32],
    groups: usize,
}

/// Floats of scratch that m rows of k columns take.
pub(super) fn rounded_floats(m: usize, k: usize) -> usize {
    m * row_floats(k.div_ceil(GROUP_COLUMNS))
}

fn row_floats(groups: usize) -> usize {
    groups * (GROUP_FLOATS + 2)
}

impl<'a> Rounded<'a> {
    pub(super) fn new(
        pool: &Pool,
        m: usize,
        k: usize,
        x: &[f32],
        stride: usize,
        scratch: &'a mut [f32],
    ) -> Self {
        let groups = k.div_ceil(GROUP_COLUMNS);
        let rows = &mut scratch[..m * row_floats(groups)];
        let shared = Disjoint::new(rows);
        let one = |_, row: usize| {
            // SAFETY: each row is one item.
            let out = unsafe { shared.range(row * row_floats(groups), row_floats(groups)) };
            // SAFETY: this module is used on the AVX2 path alone.
            unsafe { round_row(&x[row * stride..][..k], groups, out) };
        };
        if m * k < SHARED {
            (0..m).for_each(|row| one(0, row));
        } else {
            pool.each(m, one);
        }
        Self { rows, groups }
    }

    /// The addresses of one row: integers, scales, offsets.
    pub(super) fn row(&self, row: usize) -> (*const i32, *const f32, *const i32) {
        let row = &self.rows[row * row_floats(self.groups)..][..row_floats(self.groups)];
        let scales = &row[self.groups * GROUP_FLOATS..];
        (row.as_ptr().cast(), scales.as_ptr(), scales[self.groups..].as_ptr().cast())
    }
}

/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn round_row(x: &[f32], groups: usize, out: &mut [f32]) {
    let (integers, rest) = out.split_at_mut(groups * GROUP_FLOATS);
    let (scales, offsets) = rest.split_at_mut(groups);
    let integers: &mut [i16] = bytemuck::cast_slice_mut(integers);
    let offsets: &mut [i32] = bytemuck::cast_slice_mut(offsets);
    let mut padded = [0.0; GROUP_COLUMNS];
    for (group, out) in integers.chunks_exact_mut(GROUP_COLUMNS).enumerate() {
        let part = &x[group * GROUP_COLUMNS..x.len().min((group + 1) * GROUP_COLUMNS)];
        padded[..part.len()].copy_from_slice(part);
        padded[part.len()..].fill(0.0);
        // As integers, magnitudes have the same order, and vectors may take their largest in any; NaN is above infinity.
        let largest = padded.iter().fold(0, |largest, x| largest.max(x.to_bits() & SIGNLESS));
        let finite = largest < f32::INFINITY.to_bits();
        let largest = f32::from_bits(largest);
        // A group of zeros has scale 0; an infinity or NaN in x must come out as NaN, not as a large number.
        scales[group] = if finite { largest / LIMIT } else { f32::NAN };
        let inverse = if largest > 0.0 { LIMIT / largest } else { 0.0 };
        let mut sum = 0;
        for (out, x) in out.iter_mut().zip(&padded) {
            // The sum's last bit is worth one: it is rounded to nearest, ties to even, and its lower half is the integer.
            *out = (x * inverse + ROUNDING).to_bits() as i16;
            sum += i32::from(*out);
        }
        offsets[group] = -8 * sum;
    }
}

/// Bytes of one group of a full panel.
pub(super) fn group_bytes(dtype: DType) -> usize {
    PANEL * dtype.matrix_bytes(1, GROUP_COLUMNS as u64).get() as usize
}

/// Which instructions multiply; the results are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    Avx2,
    /// AVX-512 F, BW, VL and VNNI (see `vnni`).
    Vnni,
}

impl Instructions {
    /// What a path has: AVX-512 without VNNI (Skylake's) is no faster here than AVX2.
    pub(super) fn of(path: Path) -> Self {
        match path {
            Path::Avx512 | Path::Avx512Bf16 | Path::Amx if is_x86_feature_detected!("avx512vnni") => {
                Self::Vnni
            }
            _ => Self::Avx2,
        }
    }

    /// Most rows of one tile.
    pub(super) fn tile_rows(self) -> usize {
        match self {
            Self::Avx2 => TILE_ROWS,
            Self::Vnni => vnni::TILE_ROWS,
        }
    }
}

/// y (+)= x·w for up to [`Instructions::tile_rows`] `rows` of x and one full panel of `int8` or `int4`; y is the first row's
/// part of the panel, rows `y_stride` apart. `columns` start on a group; where not at 0, y is added to. `fetch`:
/// what to ask memory for meanwhile.
///
/// # Safety
/// The CPU has the instructions, and AVX2, FMA and F16C; x has these rows; y has them too, and nobody else touches them.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn multiply(
    instructions: Instructions,
    dtype: DType,
    panel: &[u8],
    columns: Range<usize>,
    x: Rounded<'_>,
    rows: Range<usize>,
    y: *mut f32,
    y_stride: usize,
    fetch: Fetch,
) {
    let bytes = group_bytes(dtype);
    let groups = columns.start / GROUP_COLUMNS..columns.end.div_ceil(GROUP_COLUMNS);
    let panel = &panel[groups.start * bytes..groups.end * bytes];
    if instructions == Instructions::Vnni {
        let tile = vnni::Tile { x, row: rows.start, groups, y, y_stride, fetch };
        // SAFETY: the caller's promises.
        return unsafe { tile.run(dtype, rows.len(), panel) };
    }
    let target = Target { x, row: rows.start, first: groups.start, y, y_stride, fetch };
    // SAFETY: the caller's promises.
    unsafe {
        match dtype {
            DType::Int8 => target.dispatch::<false>(rows.len(), panel),
            _ => target.dispatch::<true>(rows.len(), panel),
        }
    }
}

/// What one call of [`multiply`] reads and writes besides the weights.
struct Target<'a> {
    x: Rounded<'a>,
    row: usize,
    /// First group.
    first: usize,
    y: *mut f32,
    y_stride: usize,
    fetch: Fetch,
}

impl Target<'_> {
    /// # Safety
    /// As [`multiply`].
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
    /// As [`multiply`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn rows<const M: usize, const INT4: bool>(&self, panel: &[u8]) {
        let x: [_; M] = std::array::from_fn(|row| self.x.row(self.row + row));
        let mut sums = [[_mm256_setzero_ps(); 2]; M];
        // SAFETY: y has these rows of sixteen values, which are ours.
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
            // SAFETY: (all blocks) x has this group: 16 pairs, a scale and an offset in each row; the weights
            // have 32 bytes of scales and then the group's values.
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

/// Adds the products of one pair of columns, widened to 16 bits: `low` is rows 0–7, `high` rows 8–15.
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
