//! 8-bit floats (E4M3) widened on the way into registers.
//!
//! Moved to the upper bits of an f16, the bits of an E4M3 number are 2⁻⁸ of it, for subnormal
//! numbers too, and the conversion from f16 to f32 is exact and as fast for them. Moved to the
//! upper bits of a bf16 they are 2⁻¹²⁰ of a normal number. A subnormal one would stay subnormal,
//! and VDPBF16PS takes it for zero, so that those eight magnitudes come from a table.
//!
//! Numbers that are none (all ones) do not occur.

use super::avx2::{Fetch, WeightColumns};
use super::avx512::{TileStep, add_pairs};
use std::arch::x86_64::*;

/// What multiplies the sums of weights that were widened by way of f16.
pub(crate) const UNIT: f32 = 256.0;
/// Sign, exponent and fraction of an E4M3 number in an f16.
const F16_BITS: i16 = 0xbf80_u16 as i16;
/// The same in a bf16.
const BF16_BITS: i16 = 0x87f0_u16 as i16;
/// The difference of the exponents' biases, in a bf16.
const REBIAS: i16 = 120 << 7;

/// 8-bit floats of one panel: pairs of columns, as in bf16.
#[derive(Clone, Copy)]
pub(crate) struct Float8Columns {
    pub(crate) start: *const u8,
    pub(crate) fetch: Fetch,
}

/// Numbers in the upper bytes of eight words, as f32.
///
/// # Safety
/// The CPU has AVX2 and F16C.
#[inline(always)]
unsafe fn widen(words: __m128i) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16::<1>(words), _mm_set1_epi16(F16_BITS))) }
}

impl WeightColumns for Float8Columns {
    #[inline(always)]
    unsafe fn first(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises columns `k` and `k + 1`: 32 bytes from here on.
        unsafe {
            let at = self.start.add(16 * k).cast::<__m128i>();
            let half = |at| widen(_mm_slli_epi16::<8>(_mm_loadu_si128(at)));
            (half(at), half(at.add(1)))
        }
    }

    #[inline(always)]
    unsafe fn second(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises column `k`, whose pair is 32 bytes from column `k - 1` on.
        unsafe {
            let at = self.start.add(16 * (k - 1)).cast::<__m128i>();
            (widen(_mm_loadu_si128(at)), widen(_mm_loadu_si128(at.add(1))))
        }
    }

    #[inline(always)]
    unsafe fn last(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises column `k` without a partner: 16 bytes from here on.
        unsafe {
            let bytes = _mm_loadu_si128(self.start.add(16 * k).cast());
            let zero = _mm_setzero_si128();
            (widen(_mm_unpacklo_epi8(zero, bytes)), widen(_mm_unpackhi_epi8(zero, bytes)))
        }
    }

    #[inline(always)]
    fn prefetch(self, k: usize) {
        self.fetch.line(self.start, 16 * k);
    }
}

/// 8-bit floats widened to f32: two columns, the first in the lower bytes.
#[derive(Clone, Copy)]
pub(crate) struct WidenedFloat8Step;

impl TileStep for WidenedFloat8Step {
    const COLUMNS: usize = 2;
    const VALUES: usize = 2;
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn weights(at: *const u8, value: usize) -> __m512 {
        // SAFETY: the caller promises 32 bytes.
        unsafe {
            let words = _mm256_loadu_si256(at.cast());
            let words = if value == 0 { _mm256_slli_epi16::<8>(words) } else { words };
            let halves = _mm256_and_si256(_mm256_srai_epi16::<1>(words), _mm256_set1_epi16(F16_BITS));
            _mm512_cvtph_ps(halves)
        }
    }

    #[inline(always)]
    unsafe fn add(sum: __m512, x: __m512, w: __m512) -> __m512 {
        // SAFETY: the caller promises AVX-512F.
        unsafe { _mm512_fmadd_ps(x, w, sum) }
    }
}

/// 8-bit floats widened to bf16, times pairs of x rounded to bf16: two columns.
#[derive(Clone, Copy)]
pub(crate) struct PairedFloat8Step;

impl TileStep for PairedFloat8Step {
    const COLUMNS: usize = 2;
    const VALUES: usize = 1;
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn weights(at: *const u8, _: usize) -> __m512 {
        // SAFETY: the caller promises 32 bytes.
        unsafe { _mm512_castsi512_ps(bf16_pairs(_mm256_loadu_si256(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn add(sum: __m512, x: __m512, w: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { add_pairs(sum, x, w) }
    }
}

/// 8-bit floats as bf16.
///
/// # Safety
/// The CPU has AVX-512 F and BW.
#[inline(always)]
pub(crate) unsafe fn bf16_pairs(bytes: __m256i) -> __m512i {
    /// Multiples of 2⁻⁹ in bf16.
    const SUBNORMAL: [u16; 32] = {
        let mut table = [0; 32];
        let mut units = 1;
        while units < 8 {
            table[units] = ((units as f32 / 512.0).to_bits() >> 16) as u16;
            units += 1;
        }
        table
    };
    // SAFETY: the caller's promise; the table is 64 bytes.
    unsafe {
        let words = _mm512_cvtepi8_epi16(bytes);
        let moved = _mm512_and_si512(_mm512_slli_epi16::<4>(words), _mm512_set1_epi16(BF16_BITS));
        let normal = _mm512_add_epi16(moved, _mm512_set1_epi16(REBIAS));
        let is_subnormal = _mm512_testn_epi16_mask(words, _mm512_set1_epi16(0x78));
        let table = _mm512_loadu_si512(SUBNORMAL.as_ptr().cast());
        // The lower five bits of a subnormal number's word are its fraction.
        let magnitude = _mm512_mask_permutexvar_epi16(normal, is_subnormal, words, table);
        // magnitude | (words & sign)
        _mm512_ternarylogic_epi64::<0xf8>(magnitude, words, _mm512_set1_epi16(i16::MIN))
    }
}
