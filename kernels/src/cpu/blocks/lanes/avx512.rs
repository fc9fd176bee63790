//! Vectors of 512 bits.

use super::Lanes;
use std::arch::asm;
use std::arch::x86_64::*;

/// AVX-512 F, BW, VL and VNNI.
#[derive(Clone, Copy)]
pub(in crate::cpu::blocks) struct Avx512;

impl Lanes for Avx512 {
    type Int = __m512i;
    type Float = __m512;
    const COUNT: usize = 16;

    #[inline(always)]
    unsafe fn words(at: *const u8) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    #[inline(always)]
    unsafe fn shorts(at: *const u8) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn bytes(at: *const u8) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn halves(at: *const u8) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn splat(word: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    unsafe fn and(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn xor(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn max(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_max_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn min(a: Self::Int, b: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_min_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn right(a: Self::Int, bits: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn left(a: Self::Int, bits: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn left_each(a: Self::Int, bits: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_sllv_epi32(a, bits) }
    }

    #[inline(always)]
    unsafe fn right_signed(a: Self::Int, bits: u32) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_sra_epi32(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn table(entries: &[u8; 16]) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(entries.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn look_up(table: Self::Int, bytes: Self::Int) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe { _mm512_shuffle_epi8(table, bytes) }
    }

    #[inline(always)]
    unsafe fn to_float(a: Self::Int) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_cvtepi32_ps(a) }
    }

    #[inline(always)]
    unsafe fn from_bits(a: Self::Int) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_castsi512_ps(a) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat_float(value: f32) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Float, b: Self::Float) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn mul_sub(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float {
        // SAFETY: the trait's promise.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::Float) {
        // SAFETY: the trait's promise.
        unsafe { _mm512_storeu_ps(to, value) }
    }

    /// x is 256·high + low: the bytes `low` of eight times four columns, then the bytes `high`. Two
    /// sums run side by side.
    #[expect(clippy::needless_range_loop, reason = "x has an offset that depends on the index")]
    #[inline(always)]
    unsafe fn products<const FROM: usize, const TO: usize>(
        quads: &[Self::Int; 8],
        x: *const i32,
        start: i32,
    ) -> Self::Int {
        // SAFETY: the trait's promise.
        unsafe {
            let (mut low, mut high) = (_mm512_set1_epi32(start), _mm512_setzero_si512());
            for quad in FROM..TO {
                low = add_products(low, quads[quad], x.add(quad));
                high = add_products(high, quads[quad], x.add(8 + quad));
            }
            _mm512_add_epi32(_mm512_slli_epi32::<8>(high), low)
        }
    }
}

/// sum + the products of each lane's four unsigned bytes and the four signed bytes at `x`. In
/// assembly, so that the broadcast is a part of the instruction.
///
/// # Safety
/// The CPU has AVX-512 VNNI; four bytes lie at `x`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn add_products(mut sum: __m512i, weights: __m512i, x: *const i32) -> __m512i {
    // SAFETY: the caller's promise; only `sum` changes.
    unsafe {
        asm!("vpdpbusd {0}, {1}, dword ptr [{2}]{{1to16}}", inout(zmm_reg) sum, in(zmm_reg) weights, in(reg) x,
            options(pure, readonly, nostack, preserves_flags));
    }
    sum
}
