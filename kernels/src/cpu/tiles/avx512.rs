//! The micro-kernel of 512-bit vectors: up to twelve rows of x times one or two panels of weights,
//! in registers; up to three rows times eight panels.
//!
//! Twelve rows of two vectors are 24 accumulators. With two vectors of weights and one value of x
//! they leave a few of the 32 registers of AVX-512. Tiles of four and five rows have two
//! accumulators for each output, so that at least eight chains cover the latency (4) of two FMA
//! units. Tiles of fewer rows have one, whatever the number of panels: a row's result is then the
//! same bits in every tile, however a matrix is divided.

use super::scales::TileScales;
use std::arch::asm;
use std::arch::x86_64::*;

/// The most rows of one tile.
pub(crate) const TILE_ROWS: usize = 12;
/// The most panels of one tile, and the most rows that take so many. Few rows wait for memory, and
/// the more panels share a value of x, the fewer instructions stand between two reads, so that more
/// of them are on their way.
pub(crate) const MOST_PANELS: usize = 8;
pub(crate) const MOST_PANELS_ROWS: usize = 3;

/// How a step of a panel becomes vectors of sixteen outputs' weights, and how these are multiplied.
pub(crate) trait TileStep: Copy {
    /// Columns of one step.
    const COLUMNS: usize;
    /// Values of x for one step, which is also the number of its vectors of weights.
    const VALUES: usize;
    /// Bytes of one step of a panel.
    const BYTES: usize;

    /// The weights for value `value` of x.
    ///
    /// # Safety
    /// The CPU has the path's instructions; a step of a panel lies at `at`.
    unsafe fn weights(at: *const u8, value: usize) -> __m512;

    /// sum + x·w, lane by lane.
    ///
    /// # Safety
    /// The CPU has the path's instructions.
    unsafe fn add(sum: __m512, x: __m512, w: __m512) -> __m512;
}

/// f32 weights: one column.
#[derive(Clone, Copy)]
pub(crate) struct F32Step;

impl TileStep for F32Step {
    const COLUMNS: usize = 1;
    const VALUES: usize = 1;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn weights(at: *const u8, _: usize) -> __m512 {
        // SAFETY: the caller promises sixteen values.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }

    #[inline(always)]
    unsafe fn add(sum: __m512, x: __m512, w: __m512) -> __m512 {
        // SAFETY: the caller promises AVX-512F.
        unsafe { _mm512_fmadd_ps(x, w, sum) }
    }
}

/// bf16 weights widened to f32: two columns, the first in the lower halves.
#[derive(Clone, Copy)]
pub(crate) struct WidenedBf16Step;

impl TileStep for WidenedBf16Step {
    const COLUMNS: usize = 2;
    const VALUES: usize = 2;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn weights(at: *const u8, value: usize) -> __m512 {
        // SAFETY: the caller promises 64 bytes.
        unsafe {
            let pairs = _mm512_loadu_si512(at.cast());
            _mm512_castsi512_ps(match value {
                0 => _mm512_slli_epi32::<16>(pairs),
                _ => _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32)),
            })
        }
    }

    #[inline(always)]
    unsafe fn add(sum: __m512, x: __m512, w: __m512) -> __m512 {
        // SAFETY: the caller promises AVX-512F.
        unsafe { _mm512_fmadd_ps(x, w, sum) }
    }
}

/// bf16 weights times pairs of x rounded to bf16: two columns.
#[derive(Clone, Copy)]
pub(crate) struct PairedBf16Step;

impl TileStep for PairedBf16Step {
    const COLUMNS: usize = 2;
    const VALUES: usize = 1;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn weights(at: *const u8, _: usize) -> __m512 {
        // SAFETY: the caller promises 64 bytes.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }

    #[inline(always)]
    unsafe fn add(sum: __m512, x: __m512, w: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { add_pairs(sum, x, w) }
    }
}

/// sum + the products of both values of each lane's pair. The intrinsic would need AVX512_BF16 on
/// every function into which this is inlined, but those serve f32 too.
///
/// # Safety
/// The CPU has AVX512_BF16.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn add_pairs(mut sum: __m512, x: __m512, w: __m512) -> __m512 {
    // SAFETY: the caller's promise; the instruction changes only `sum`.
    unsafe {
        asm!("vdpbf16ps {0}, {1}, {2}", inout(zmm_reg) sum, in(zmm_reg) x, in(zmm_reg) w,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// The operands of one tile: y (+)= x·w.
pub(crate) struct Avx512Tile {
    /// The first step of the first row (for bf16 each value is a pair), and the distance of rows in
    /// values.
    pub(crate) x: *const f32,
    pub(crate) x_stride: usize,
    /// The first step of the first panel, and the distance of the second panel in bytes.
    pub(crate) w: *const u8,
    pub(crate) panel_bytes: usize,
    pub(crate) steps: usize,
    /// What multiplies the products.
    pub(crate) scales: TileScales,
    /// Whether the products are added to y; otherwise they overwrite it.
    pub(crate) add: bool,
    pub(crate) y: *mut f32,
    pub(crate) y_stride: usize,
    /// The address to prefetch from: a step's prefetch is as far from it as the step's weights are
    /// from `w`. Null means no prefetch.
    pub(crate) ahead: *const u8,
}

impl Avx512Tile {
    /// Computes `m` rows of `panels` panels.
    ///
    /// # Safety
    /// The CPU has the step's instructions; 1 ≤ m ≤ 12; 1 ≤ panels ≤ 2, or eight with m ≤ 3. x, w,
    /// the scales and y hold these rows, panels and steps, and nobody else touches y.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(crate) unsafe fn run<S: TileStep>(&self, m: usize, panels: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            match (panels, m) {
                (MOST_PANELS, 1) => self.rows::<S, MOST_PANELS, 1, 1>(),
                (MOST_PANELS, 2) => self.rows::<S, MOST_PANELS, 2, 1>(),
                (MOST_PANELS, _) => self.rows::<S, MOST_PANELS, 3, 1>(),
                (1, _) => self.panels::<S, 1>(m),
                _ => self.panels::<S, 2>(m),
            }
        }
    }

    /// Widens the weights into `buffer`, a vector for each value of x, and prefetches; from then on
    /// these are the tile's weights and steps.
    ///
    /// # Safety
    /// As [`Avx512Tile::run`].
    ///
    /// # Panics
    /// Where `buffer` is too short.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(crate) unsafe fn widen<S: TileStep>(&mut self, panels: usize, buffer: &mut [f32]) {
        let panel_floats = 16 * S::VALUES * self.steps;
        let vectors = buffer[..panels * panel_floats].chunks_exact_mut(16);
        for (at, out) in vectors.enumerate() {
            let (panel, value) = (at / (S::VALUES * self.steps), at % S::VALUES);
            let offset = panel * self.panel_bytes + at / S::VALUES % self.steps * S::BYTES;
            // SAFETY: the caller's promise; `out` has sixteen values. A prefetch never faults.
            unsafe {
                _mm_prefetch::<_MM_HINT_T1>(self.ahead.wrapping_add(offset).cast());
                _mm512_storeu_ps(out.as_mut_ptr(), S::weights(self.w.add(offset), value));
            }
        }
        (self.w, self.panel_bytes) = (buffer.as_ptr().cast(), 4 * panel_floats);
        (self.steps, self.ahead) = (S::VALUES * self.steps, std::ptr::null());
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn panels<S: TileStep, const P: usize>(&self, m: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            match m {
                1 => self.rows::<S, P, 1, 1>(),
                2 => self.rows::<S, P, 2, 1>(),
                3 => self.rows::<S, P, 3, 1>(),
                4 => self.rows::<S, P, 4, 2>(),
                5 => self.rows::<S, P, 5, 2>(),
                6 => self.rows::<S, P, 6, 1>(),
                7 => self.rows::<S, P, 7, 1>(),
                8 => self.rows::<S, P, 8, 1>(),
                9 => self.rows::<S, P, 9, 1>(),
                10 => self.rows::<S, P, 10, 1>(),
                11 => self.rows::<S, P, 11, 1>(),
                _ => self.rows::<S, P, 12, 1>(),
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn rows<S: TileStep, const P: usize, const M: usize, const CHAINS: usize>(&self) {
        let mut sums = [[[_mm512_setzero_ps(); P]; M]; CHAINS];
        // SAFETY: (all blocks) the caller promises that x has M rows of these steps and w has P
        // panels of them.
        let step = |at: usize, sums: &mut [[__m512; P]; M]| unsafe {
            for value in 0..S::VALUES {
                let mut w = [_mm512_setzero_ps(); P];
                for (panel, w) in w.iter_mut().enumerate() {
                    *w = S::weights(self.w.add(panel * self.panel_bytes + at * S::BYTES), value);
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(*self.x.add(row * self.x_stride + at * S::VALUES + value));
                    for (sum, &w) in sums.iter_mut().zip(&w) {
                        *sum = S::add(*sum, x, w);
                    }
                }
            }
        };
        let whole = self.steps - self.steps % 4;
        let mut at = 0;
        while at < whole {
            if !self.ahead.is_null() {
                for line in (0..4 * S::BYTES).step_by(64) {
                    for panel in 0..P {
                        let ahead = self.ahead.wrapping_add(panel * self.panel_bytes + at * S::BYTES + line);
                        match P {
                            MOST_PANELS => _mm_prefetch::<_MM_HINT_T0>(ahead.cast()),
                            _ => _mm_prefetch::<_MM_HINT_T1>(ahead.cast()),
                        }
                    }
                }
            }
            step(at, &mut sums[0]);
            step(at + 1, &mut sums[1 % CHAINS]);
            step(at + 2, &mut sums[2 % CHAINS]);
            step(at + 3, &mut sums[3 % CHAINS]);
            at += 4;
        }
        while at < self.steps {
            step(at, &mut sums[0]);
            at += 1;
        }
        // SAFETY: the caller promises the scales of P panels.
        let scales: [_; P] = std::array::from_fn(|panel| unsafe { self.scales.wide(panel) });
        for row in 0..M {
            for panel in 0..P {
                let mut sum = sums[0][row][panel];
                for chain in &sums[1..] {
                    sum = _mm512_add_ps(sum, chain[row][panel]);
                }
                // SAFETY: y has M rows of P·16 values, which belong to this tile.
                unsafe {
                    let to = self.y.add(row * self.y_stride + 16 * panel);
                    let before = || if self.add { _mm512_loadu_ps(to) } else { _mm512_setzero_ps() };
                    let sum = match scales[panel] {
                        Some(scales) => _mm512_fmadd_ps(scales, sum, before()),
                        None if self.add => _mm512_add_ps(before(), sum),
                        None => sum,
                    };
                    _mm512_storeu_ps(to, sum);
                }
            }
        }
    }
}
