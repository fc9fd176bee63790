//! Vectors of 256 bits.

use super::Lanes;
use std::arch::x86_64::*;

/// AVX2 with FMA and F16C.
#[derive(Clone, Copy)]
pub(in crate::cpu::blocks) struct Avx2;

impl Lanes for Avx2 {
    type Int = __m256i;
    type Float = __m256;
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_loadu_si256(at.cast()) }
    }

    #[inline(always)]
    unsafe fn shorts(at: *const u8) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn bytes(at: *const u8) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())) }
    }

    #[inline(always)]
    unsafe fn halves(at: *const u8) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn splat(word: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    unsafe fn and(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn xor(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn max(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_max_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn min(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_min_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn right(a: Self::Int, bits: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn left(a: Self::Int, bits: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn left_each(a: Self::Int, bits: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_sllv_epi32(a, bits) }
    }

    #[inline(always)]
    unsafe fn right_signed(a: Self::Int, bits: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_sra_epi32(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn table(entries: &[u8; 16]) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(entries.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn look_up(table: Self::Int, bytes: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm256_shuffle_epi8(table, bytes) }
    }

    #[inline(always)]
    unsafe fn to_float(a: Self::Int) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_cvtepi32_ps(a) }
    }

    #[inline(always)]
    unsafe fn from_bits(a: Self::Int) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_castsi256_ps(a) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Float, b: Self::Float) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn mul_sub(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::Float) {
        // SAFETY: the trait's promise.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    /// Columns 0 and 2 of four are a pair of 16-bit integers, and so are 1 and 3: unsigned bytes
    /// would overflow the 16-bit sums of VPMADDUBSW.
    #[expect(clippy::needless_range_loop, reason = "x has an offset that depends on the index")]
    #[inline(always)]
    unsafe fn products<const FROM: usize, const TO: usize>(
        quads: &[Self::Int; 8],
        x: *const i32,
        start: i32,
    ) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe {
            let even = _mm256_set1_epi16(255);
            let mut sums = [_mm256_set1_epi32(start), _mm256_setzero_si256()];
            for quad in FROM..TO {
                let parts = [_mm256_and_si256(quads[quad], even), _mm256_srli_epi16::<8>(quads[quad])];
                for (part, weights) in parts.into_iter().enumerate() {
                    let pair = _mm256_set1_epi32(*x.add(2 * quad + part));
                    sums[part] = _mm256_add_epi32(sums[part], _mm256_madd_epi16(weights, pair));
                }
            }
            _mm256_add_epi32(sums[0], sums[1])
        }
    }
}
