//! The micro-kernel of 256-bit vectors: up to six rows of x times a panel of sixteen weights, in
//! registers.
//!
//! Six rows of two vectors are twelve accumulators. With two vectors of weights and one value of x
//! they fill the 16 registers of AVX2. Twelve independent chains also cover the latency (4) of two
//! FMA units.

use super::scales::TileScales;
use std::arch::asm;
use std::arch::x86_64::*;

/// The most rows of one tile.
pub(crate) const TILE_ROWS: usize = 6;

/// A source of sixteen weights per column, which are widened to f32 on the way into registers.
pub(crate) trait WeightColumns: Copy {
    /// The weights of the even column `k`, which has a partner, column `k + 1`.
    ///
    /// # Safety
    /// The CPU has AVX2, and the source has these columns.
    unsafe fn first(self, k: usize) -> (__m256, __m256);

    /// The weights of the odd column `k`.
    ///
    /// # Safety
    /// The CPU has AVX2, and the source has column `k`.
    unsafe fn second(self, k: usize) -> (__m256, __m256);

    /// The weights of the source's last column `k`, which is even and has no partner.
    ///
    /// # Safety
    /// The CPU has AVX2, and the source has column `k`.
    unsafe fn last(self, k: usize) -> (__m256, __m256);

    /// Prefetches the cache lines that the kernel needs some time after column `k`, a multiple of
    /// 4.
    fn prefetch(self, k: usize);
}

/// f32 weights whose columns lie `stride` values apart.
#[derive(Clone, Copy)]
pub(crate) struct F32Columns {
    pub(crate) start: *const f32,
    pub(crate) stride: usize,
}

impl WeightColumns for F32Columns {
    #[inline(always)]
    unsafe fn first(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { self.last(k) }
    }

    #[inline(always)]
    unsafe fn second(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { self.last(k) }
    }

    #[inline(always)]
    unsafe fn last(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises column `k`: sixteen values from here on.
        unsafe {
            let at = self.start.add(k * self.stride);
            (_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8)))
        }
    }

    #[inline(always)]
    fn prefetch(self, _k: usize) {}
}

/// f32 weights of one panel.
#[derive(Clone, Copy)]
pub(crate) struct F32Panel {
    pub(crate) start: *const u8,
    pub(crate) fetch: Fetch,
}

impl WeightColumns for F32Panel {
    #[inline(always)]
    unsafe fn first(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { self.last(k) }
    }

    #[inline(always)]
    unsafe fn second(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { self.last(k) }
    }

    #[inline(always)]
    unsafe fn last(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises column `k`: 64 bytes from here on.
        unsafe {
            let at = self.start.add(64 * k).cast::<f32>();
            (_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8)))
        }
    }

    #[inline(always)]
    fn prefetch(self, k: usize) {
        (0..4).for_each(|line| self.fetch.line(self.start, 64 * (k + line)));
    }
}

/// bf16 weights of one panel: pairs of columns (see `weights`).
#[derive(Clone, Copy)]
pub(crate) struct Bf16Panel {
    pub(crate) start: *const u8,
    pub(crate) fetch: Fetch,
}

impl WeightColumns for Bf16Panel {
    #[inline(always)]
    unsafe fn first(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises columns `k` and `k + 1`: 64 bytes from here on.
        unsafe {
            let at = self.start.add(32 * k);
            (lower_halves(at), lower_halves(at.add(32)))
        }
    }

    #[inline(always)]
    unsafe fn second(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises column `k`, whose pair is 64 bytes from column `k - 1` on.
        unsafe {
            let at = self.start.add(32 * (k - 1));
            (upper_halves(at), upper_halves(at.add(32)))
        }
    }

    #[inline(always)]
    unsafe fn last(self, k: usize) -> (__m256, __m256) {
        // SAFETY: the caller promises column `k` without a partner: 32 bytes from here on.
        unsafe {
            let at = self.start.add(32 * k).cast::<__m128i>();
            let wide = |at| _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)));
            (_mm256_castsi256_ps(wide(at)), _mm256_castsi256_ps(wide(at.add(1))))
        }
    }

    #[inline(always)]
    fn prefetch(self, k: usize) {
        (0..2).for_each(|line| self.fetch.line(self.start, 32 * k + 64 * line));
    }
}

/// The first columns of eight pairs, as f32.
///
/// This is in assembly, as is [`upper_halves`], because twelve accumulators, two vectors of weights
/// and one value of x leave one register. The compiler would load the words of both columns at
/// once, keep a mask in a register, and spill accumulators, at half the rate.
///
/// # Safety
/// The CPU has AVX2; 32 bytes lie at `at`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn lower_halves(at: *const u8) -> __m256 {
    let words;
    // SAFETY: the caller's promise; the instructions read 32 bytes.
    unsafe {
        asm!("vmovdqu {0}, [{1}]", "vpslld {0}, {0}, 16", out(ymm_reg) words, in(reg) at,
            options(nostack, readonly, preserves_flags));
    }
    words
}

/// The second columns of eight pairs, as f32. The mask stays in memory.
///
/// # Safety
/// As [`lower_halves`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn upper_halves(at: *const u8) -> __m256 {
    const UPPER: [u32; 8] = [0xffff_0000; 8];
    let words;
    // SAFETY: as above; the mask is 32 bytes too.
    unsafe {
        asm!("vmovdqu {0}, [{1}]", "vpand {0}, {0}, [{2}]", out(ymm_reg) words, in(reg) at, in(reg) &UPPER,
            options(nostack, readonly, preserves_flags));
    }
    words
}

/// What to prefetch while weights are used. Hardware prefetchers stop at the end of each 4 KiB
/// page, so the distances reach past it.
///
/// Measured on Zen 4, GB/s of one core, near → far: f32 m = 1 31 → 24, int8 m = 1 26 → 23, bf16 m =
/// 1 27 → 30, bf16 m = 4 16 → 26, int4 m = 1 23 → 27.
#[derive(Clone, Copy)]
pub(crate) enum Fetch {
    /// Nothing, because the weights are in a cache already.
    Nothing,
    /// 4 KiB ahead, into the first-level cache.
    Near,
    /// 16 KiB ahead, into the second-level cache: about as much as is used until it arrives.
    Far,
}

impl Fetch {
    /// Prefetches the cache line that lies this far ahead of `start + offset`.
    #[inline(always)]
    pub(crate) fn line(self, start: *const u8, offset: usize) {
        // SAFETY: a prefetch never faults, so any address is allowed.
        unsafe {
            match self {
                Fetch::Nothing => {}
                Fetch::Near => _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset + (4 << 10)).cast()),
                Fetch::Far => _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(offset + (16 << 10)).cast()),
            }
        }
    }

    /// Prefetches the cache lines that lie this far ahead of `bytes`.
    #[inline(always)]
    pub(crate) fn lines(self, bytes: &[u8]) {
        (0..bytes.len()).step_by(64).for_each(|offset| self.line(bytes.as_ptr(), offset));
    }
}

/// The operands of one tile: y (+)= x·w.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Tile<L> {
    /// The first row of x, and the distance of its rows in values.
    pub(crate) x: *const f32,
    pub(crate) x_stride: usize,
    pub(crate) w: L,
    /// What multiplies the products.
    pub(crate) scales: TileScales,
    /// The first row of y, which has sixteen values, and the distance of its rows.
    pub(crate) y: *mut f32,
    pub(crate) y_stride: usize,
    /// Whether the products are added to y; otherwise they overwrite it.
    pub(crate) add: bool,
}

impl<L: WeightColumns> Avx2Tile<L> {
    /// Computes `m` rows from `k` columns.
    ///
    /// # Safety
    /// The CPU has AVX2 and FMA; 1 ≤ m ≤ 6; x has m rows of k values, w has k columns, y has m rows
    /// of sixteen values, and nobody else touches y.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(crate) unsafe fn run(self, m: usize, k: usize) {
        let Self { x, x_stride, w, scales, y, y_stride, add } = self;
        let to = Avx2Outputs { y, y_stride, scales, add };
        // SAFETY: the caller's promises are the callee's. The second number is how many columns
        // have accumulators of their own: enough for at least eight chains.
        unsafe {
            match m {
                1 => rows::<1, 4, L>(k, x, x_stride, w, to),
                2 => rows::<2, 2, L>(k, x, x_stride, w, to),
                3 => rows::<3, 2, L>(k, x, x_stride, w, to),
                4 => rows::<4, 1, L>(k, x, x_stride, w, to),
                5 => rows::<5, 1, L>(k, x, x_stride, w, to),
                _ => rows::<6, 1, L>(k, x, x_stride, w, to),
            }
        }
    }
}

/// sums + x·w for one column: M values of x, `x_stride` apart, times sixteen weights.
///
/// # Safety
/// The CPU has AVX2 and FMA; x has M rows.
#[inline(always)]
unsafe fn add_column<const M: usize>(
    sums: &mut [[__m256; 2]; M],
    x: *const f32,
    x_stride: usize,
    (low, high): (__m256, __m256),
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let value = _mm256_broadcast_ss(&*x.add(row * x_stride));
            sums[0] = _mm256_fmadd_ps(value, low, sums[0]);
            sums[1] = _mm256_fmadd_ps(value, high, sums[1]);
        }
    }
}

/// Where the sums of a tile go, as [`Avx2Tile`] says.
#[derive(Clone, Copy)]
struct Avx2Outputs {
    y: *mut f32,
    y_stride: usize,
    scales: TileScales,
    add: bool,
}

#[target_feature(enable = "avx2,fma")]
unsafe fn rows<const M: usize, const CHAINS: usize, L: WeightColumns>(
    k: usize,
    x: *const f32,
    x_stride: usize,
    w: L,
    to: Avx2Outputs,
) {
    let mut sums = [[[_mm256_setzero_ps(); 2]; M]; CHAINS];
    let mut at = 0;
    while at + 4 <= k {
        w.prefetch(at);
        // SAFETY: the caller promises that x has M rows of k values and w has k columns.
        unsafe {
            add_column(&mut sums[0], x.add(at), x_stride, w.first(at));
            add_column(&mut sums[1 % CHAINS], x.add(at + 1), x_stride, w.second(at + 1));
            add_column(&mut sums[2 % CHAINS], x.add(at + 2), x_stride, w.first(at + 2));
            add_column(&mut sums[3 % CHAINS], x.add(at + 3), x_stride, w.second(at + 3));
        }
        at += 4;
    }
    if at + 2 <= k {
        // SAFETY: as above.
        unsafe {
            add_column(&mut sums[0], x.add(at), x_stride, w.first(at));
            add_column(&mut sums[1 % CHAINS], x.add(at + 1), x_stride, w.second(at + 1));
        }
        at += 2;
    }
    if at < k {
        // SAFETY: as above.
        unsafe { add_column(&mut sums[0], x.add(at), x_stride, w.last(at)) };
    }
    // SAFETY: the caller promises the scales.
    let scales = [0, 1].map(|half| unsafe { to.scales.half(half) });
    for row in 0..M {
        for half in 0..2 {
            let mut sum = sums[0][row][half];
            for chain in &sums[1..] {
                sum = _mm256_add_ps(sum, chain[row][half]);
            }
            // SAFETY: y has M rows of sixteen values, which belong to this tile.
            unsafe {
                let y = to.y.add(row * to.y_stride + 8 * half);
                let before = || if to.add { _mm256_loadu_ps(y) } else { _mm256_setzero_ps() };
                let sum = match scales[half] {
                    Some(scales) => _mm256_fmadd_ps(scales, sum, before()),
                    None if to.add => _mm256_add_ps(before(), sum),
                    None => sum,
                };
                _mm256_storeu_ps(y, sum);
            }
        }
    }
}
