//! Integer weights times rows of x as in `integer`, with 512-bit vectors. VPDPWSSD multiplies a
//! pair of 16-bit columns for all sixteen outputs of a panel and adds both products.
//!
//! Sums of a group are exact, and its scales are applied in the same order, so the results are
//! those of AVX2 bit for bit. VPDPBUSD would compute twice as many products, but with x in 8 bits,
//! which is a hundred times coarser.

use super::int16_input::{GROUP_FLOATS, Int16Rows, group_bytes};
use crate::cpu::tiles::avx2::Fetch;
use crate::cpu::weights::GROUP_COLUMNS;
use crate::cpu::weights::PANEL;
use hwprofiles::DType;
use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

/// The most rows of one tile. Its sums of products and of groups, together with the weights, fit
/// the 32 registers.
pub(super) const TILE_ROWS: usize = 12;

/// Up to twelve rows of x and one full panel: y (+)= x·w.
pub(super) struct VnniTile<'a> {
    pub(super) x: Int16Rows<'a>,
    /// First row of x.
    pub(super) row: usize,
    /// The groups. Where they do not start at the first one, the products are added to y.
    pub(super) groups: Range<usize>,
    pub(super) y: *mut f32,
    pub(super) y_stride: usize,
    /// What to prefetch meanwhile.
    pub(super) fetch: Fetch,
}

impl VnniTile<'_> {
    /// Computes the tile. `panel` has the bytes of the tile's groups.
    ///
    /// # Safety
    /// The CPU has AVX-512 F, BW, VL and VNNI. x has `rows` ≤ 12 rows from `row` on; y has them
    /// too, and nobody else touches them.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) unsafe fn run(&self, dtype: DType, rows: usize, panel: &[u8]) {
        match dtype {
            // SAFETY: the caller's promises.
            DType::Int8 => unsafe { self.dispatch::<false>(rows, panel) },
            // SAFETY: the caller's promises.
            _ => unsafe { self.dispatch::<true>(rows, panel) },
        }
    }

    /// # Safety
    /// As [`VnniTile::run`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn dispatch<const INT4: bool>(&self, rows: usize, panel: &[u8]) {
        debug_assert!(rows <= TILE_ROWS);
        // SAFETY: (all) the caller's promises. The second number is the number of sums of products
        // for a row: enough chains to cover the latency. Their sum is exact in any order.
        unsafe {
            match rows {
                0 => {}
                1 => self.rows::<1, 4, INT4>(panel),
                2 => self.rows::<2, 4, INT4>(panel),
                3 => self.rows::<3, 2, INT4>(panel),
                4 => self.rows::<4, 2, INT4>(panel),
                5 => self.rows::<5, 1, INT4>(panel),
                6 => self.rows::<6, 1, INT4>(panel),
                7 => self.rows::<7, 1, INT4>(panel),
                8 => self.rows::<8, 1, INT4>(panel),
                9 => self.rows::<9, 1, INT4>(panel),
                10 => self.rows::<10, 1, INT4>(panel),
                11 => self.rows::<11, 1, INT4>(panel),
                _ => self.rows::<12, 1, INT4>(panel),
            }
        }
    }

    /// # Safety
    /// As [`VnniTile::run`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    unsafe fn rows<const M: usize, const CHAINS: usize, const INT4: bool>(&self, panel: &[u8]) {
        let x: [_; M] = std::array::from_fn(|row| self.x.row(self.row + row));
        // SAFETY: y has these rows of sixteen values, which belong to this tile.
        let y: [_; M] = std::array::from_fn(|row| unsafe { self.y.add(row * self.y_stride) });
        let mut sums = [_mm512_setzero_ps(); M];
        if self.groups.start > 0 {
            // SAFETY: as above.
            (0..M).for_each(|row| sums[row] = unsafe { _mm512_loadu_ps(y[row]) });
        }
        let bytes = group_bytes(if INT4 { DType::Int4 } else { DType::Int8 });
        for (weights, group) in panel.chunks_exact(bytes).zip(self.groups.clone()) {
            (0..bytes).step_by(64).for_each(|line| self.fetch.line(weights.as_ptr(), line));
            // SAFETY: (all blocks) x has this group: 16 pairs, a scale and an offset in each row;
            // the weights have 32 bytes of scales and then the group's values.
            unsafe {
                let mut products = [[_mm512_setzero_si512(); CHAINS]; M];
                let mut pairs = [std::ptr::null(); M];
                for row in 0..M {
                    pairs[row] = x[row].0.add(group * GROUP_FLOATS);
                    if INT4 {
                        products[row][0] = _mm512_set1_epi32(*x[row].2.add(group));
                    }
                }
                let values = weights.as_ptr().add(2 * PANEL);
                if INT4 {
                    int4_group(values, &pairs, &mut products);
                } else {
                    int8_group(values, &pairs, &mut products);
                }
                let scales = _mm512_cvtph_ps(_mm256_loadu_si256(weights.as_ptr().cast()));
                for row in 0..M {
                    let [first, rest @ ..] = &products[row][..] else { continue };
                    let product = rest.iter().fold(*first, |sum, &chain| _mm512_add_epi32(sum, chain));
                    let scale = _mm512_mul_ps(_mm512_set1_ps(*x[row].1.add(group)), scales);
                    sums[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), scale, sums[row]);
                }
            }
        }
        // SAFETY: as above.
        (0..M).for_each(|row| unsafe { _mm512_storeu_ps(y[row], sums[row]) });
    }
}

/// sum + the products of each lane's pair of weights and the pair at `x`.
///
/// This is in assembly for two reasons. The compiler turns the intrinsic into two instructions
/// (VPMADDWD and VPADDD: shorter latency, but half the rate). And it broadcasts x as floats, which
/// takes 1.5 cycles instead of 1 on Zen 4.
///
/// # Safety
/// A pair lies at `x`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn add_products(mut sum: __m512i, weights: __m512i, x: *const i32) -> __m512i {
    // SAFETY: the instruction is one of the function's features; it reads the pair and changes only
    // `sum`.
    unsafe {
        asm!("vpdpwssd {0}, {1}, dword ptr [{2}]{{1to16}}", inout(zmm_reg) sum, in(zmm_reg) weights, in(reg) x,
            options(pure, readonly, nostack, preserves_flags));
    }
    sum
}

/// Adds the products of pair `at` of columns, widened to 16 bits, to the given chain of each row.
///
/// # Safety
/// The CPU has AVX-512 F and VNNI; each of `pairs` has a pair `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn add_pair<const M: usize, const CHAINS: usize>(
    weights: __m512i,
    pairs: &[*const i32; M],
    at: usize,
    chain: usize,
    products: &mut [[__m512i; CHAINS]; M],
) {
    for (pairs, products) in pairs.iter().zip(products) {
        let chain = &mut products[chain];
        // SAFETY: the caller's promise.
        *chain = unsafe { add_products(*chain, weights, pairs.add(at)) };
    }
}

/// # Safety
/// As [`add_pair`]; `values` has 16 pairs of columns, 32 bytes each; each of `pairs` as many.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn int8_group<const M: usize, const CHAINS: usize>(
    values: *const u8,
    pairs: &[*const i32; M],
    products: &mut [[__m512i; CHAINS]; M],
) {
    // Four pairs at a time, so that the chain of each pair is a constant and all chains stay in
    // registers.
    for first in (0..GROUP_COLUMNS / 2).step_by(4) {
        for pair in 0..4 {
            // SAFETY: inside the group.
            unsafe {
                let at = first + pair;
                let weights = _mm512_cvtepi8_epi16(_mm256_loadu_si256(values.add(32 * at).cast()));
                add_pair(weights, pairs, at, pair % CHAINS, products);
            }
        }
    }
}

/// # Safety
/// As [`add_pair`]; `values` has 4 × 16 words of eight nibbles; each of `pairs` 16 pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn int4_group<const M: usize, const CHAINS: usize>(
    values: *const u8,
    pairs: &[*const i32; M],
    products: &mut [[__m512i; CHAINS]; M],
) {
    let mask = _mm512_set1_epi16(15);
    for eight in 0..GROUP_COLUMNS / 8 {
        // SAFETY: inside the group. In each word, nibbles i and i + 4 are columns 2i and 2i + 1.
        unsafe {
            let words = _mm512_loadu_si512(values.add(64 * eight).cast());
            let at = 4 * eight;
            add_pair(_mm512_and_si512(words, mask), pairs, at, 0, products);
            add_pair(
                _mm512_and_si512(_mm512_srli_epi16::<4>(words), mask),
                pairs,
                at + 1,
                1 % CHAINS,
                products,
            );
            add_pair(
                _mm512_and_si512(_mm512_srli_epi16::<8>(words), mask),
                pairs,
                at + 2,
                2 % CHAINS,
                products,
            );
            add_pair(_mm512_srli_epi16::<12>(words), pairs, at + 3, 3 % CHAINS, products);
        }
    }
}
