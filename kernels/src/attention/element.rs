//! The number formats of a KV cache, as vectors of f32.

use std::arch::x86_64::*;

/// A number format that loads eight at a time.
pub(super) trait Element {
    /// Bytes of one value.
    const BYTES: usize;

    /// Eight values from `at` on, as f32.
    ///
    /// # Safety
    /// The CPU has AVX2, and eight values are there.
    unsafe fn load(at: *const u8) -> __m256;
}

/// f32.
pub(super) struct Single;

impl Element for Single {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

/// bf16: the upper half of an f32.
pub(super) struct Brain;

impl Element for Brain {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
}
