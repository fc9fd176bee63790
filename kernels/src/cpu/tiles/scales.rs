//! What multiplies the sums of a tile.

use std::arch::x86_64::*;

/// Scales of a tile's outputs, in f32 at any address.
#[derive(Clone, Copy)]
pub(crate) struct TileScales {
    /// The first panel's scales; null where sums are not scaled.
    at: *const u8,
    /// The distance of the second panel's.
    panel_bytes: usize,
    /// Whether each of a panel's sixteen outputs has its own.
    each: bool,
    /// What multiplies the scales themselves.
    unit: f32,
}

impl TileScales {
    /// Sums as they are.
    pub(crate) const NONE: Self = Self { at: std::ptr::null(), panel_bytes: 0, each: false, unit: 1.0 };

    /// Sixteen scales at `at` (`each`), or one for all outputs of a panel, times `unit`.
    pub(crate) fn new(at: *const u8, panel_bytes: usize, each: bool, unit: f32) -> Self {
        Self { at, panel_bytes, each, unit }
    }

    /// The scales of panel `panel`, if sums are scaled.
    ///
    /// # Safety
    /// The CPU has AVX-512F; the scales lie where this was told.
    #[inline(always)]
    pub(crate) unsafe fn wide(self, panel: usize) -> Option<__m512> {
        let at = self.at.wrapping_add(panel * self.panel_bytes).cast::<f32>();
        // SAFETY: the caller's promise.
        (!self.at.is_null()).then(|| unsafe {
            let scales = if self.each { _mm512_loadu_ps(at) } else { _mm512_set1_ps(at.read_unaligned()) };
            _mm512_mul_ps(scales, _mm512_set1_ps(self.unit))
        })
    }

    /// The scales of the first (`half` 0) or last (1) eight outputs of the first panel, if sums are
    /// scaled.
    ///
    /// # Safety
    /// The CPU has AVX; the scales lie where this was told.
    #[inline(always)]
    pub(crate) unsafe fn half(self, half: usize) -> Option<__m256> {
        let at = self.at.cast::<f32>();
        // SAFETY: the caller's promise.
        (!self.at.is_null()).then(|| unsafe {
            let each = self.each.then(|| _mm256_loadu_ps(at.add(8 * half)));
            let scales = each.unwrap_or_else(|| _mm256_set1_ps(at.read_unaligned()));
            _mm256_mul_ps(scales, _mm256_set1_ps(self.unit))
        })
    }
}
