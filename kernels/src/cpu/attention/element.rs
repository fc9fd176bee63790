//! The number formats of a KV cache, as vectors of f32.

use crate::cpu::kv::{INT2_BYTES, INT8_BYTES, VALUES};
use std::arch::x86_64::*;

/// A number format of the cache that is loaded eight values at a time.
pub(super) trait CacheElement {
    /// Bytes of a row of `head_dim` values.
    fn row_bytes(head_dim: usize) -> usize;

    /// Eight values of the row at `row` as f32, from index `at` on, which is a multiple of eight.
    ///
    /// # Safety
    /// The CPU has AVX2 and F16C, and the row has these values.
    unsafe fn load(row: *const u8, at: usize) -> __m256;
}

/// f32.
pub(super) struct F32;

impl CacheElement for F32 {
    fn row_bytes(head_dim: usize) -> usize {
        4 * head_dim
    }

    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(row.add(4 * at).cast()) }
    }
}

/// bf16: the upper half of an f32.
pub(super) struct Bf16;

impl CacheElement for Bf16 {
    fn row_bytes(head_dim: usize) -> usize {
        2 * head_dim
    }

    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(row.add(2 * at).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
}

/// int8 in groups with a scale (see `cpu::kv`).
pub(super) struct Int8Groups;

impl CacheElement for Int8Groups {
    fn row_bytes(head_dim: usize) -> usize {
        head_dim.div_ceil(VALUES) * INT8_BYTES
    }

    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize) -> __m256 {
        // SAFETY: the caller's promise; the last group is padded, so it is whole.
        unsafe {
            let group = row.add(at / VALUES * INT8_BYTES);
            let q = _mm256_cvtepi8_epi32(_mm_loadl_epi64(group.add(2 + at % VALUES).cast()));
            _mm256_mul_ps(broadcast_half(group), _mm256_cvtepi32_ps(q))
        }
    }
}

/// int2 in groups with a scale and a minimum (see `cpu::kv`).
pub(super) struct Int2Groups;

impl CacheElement for Int2Groups {
    fn row_bytes(head_dim: usize) -> usize {
        head_dim.div_ceil(VALUES) * INT2_BYTES
    }

    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize) -> __m256 {
        // SAFETY: the caller's promise; a padded group is whole.
        unsafe {
            let group = row.add(at / VALUES * INT2_BYTES);
            let all = group.add(4).cast::<u64>().read_unaligned();
            // Eight values are two bits in each of eight bytes.
            let q = all >> (at % VALUES / 4) & 0x0303_0303_0303_0303;
            let q = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(q as i64)));
            _mm256_fmadd_ps(broadcast_half(group), q, broadcast_half(group.add(2)))
        }
    }
}

/// Broadcasts an f16 to every lane as f32.
///
/// # Safety
/// The CPU has AVX2 and F16C, and two bytes are there.
#[inline(always)]
unsafe fn broadcast_half(at: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_set1_epi16(at.cast::<i16>().read_unaligned())) }
}
