//! Blocking and sharing of work around the micro-kernel of tiles.
//!
//! x is rounded to bf16 once. A pair of panels is unpacked, a block of columns at a time, into tiles that stay in the
//! second-level cache while the rows of a chunk of x, which stays there too, pass by.

use super::amx_tile::{Block, TILE_BYTES, TILE_ROWS, config, configure, release};
use super::avx2::split;
use super::avx512::unpack_pairs;
use super::avx512_tile::paired;
use super::rounded::{DEPTH, Halves};
use crate::disjoint::Disjoint;
use crate::{PANEL, Pool, WeightsView};
use std::arch::x86_64::_mm512_storeu_si512;
use std::ops::Range;

/// Columns of a block: 64 KiB of tiles for two panels.
const BLOCK: usize = 1024;
/// Floats of the tiles of one panel's block.
const PANEL_FLOATS: usize = BLOCK * PANEL / 2;
/// Rows of one block of outputs.
const ROWS: usize = 2 * TILE_ROWS;

/// Floats of one member's buffer: the tiles of two panels, and sums of a panel of fewer than sixteen rows.
pub(super) const MEMBER_FLOATS: usize = 2 * PANEL_FLOATS + ROWS * PANEL;

/// y = x·Wᵀ of bf16 weights, x rounded to bf16, the sums in f32 in the order of TDPBF16PS.
///
/// # Safety
/// The CPU has AVX-512BW and AMX-BF16, and this process may use the tiles.
pub(super) unsafe fn gemm(
    pool: &Pool,
    m: usize,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    w: WeightsView<'_>,
    scratch: &mut [f32],
) {
    let (buffers, rest) = scratch.split_at_mut(pool.members() * MEMBER_FLOATS);
    let product = Product { y, y_stride, x: Halves::new(pool, m, w.columns(), x, x_stride, rest), w };
    let all = w.rows().div_ceil(PANEL);
    let (rows, panels) = split(pool.members(), m, w, ROWS);
    let panels = panels.next_multiple_of(2);
    let (row_chunks, panel_chunks) = (m.div_ceil(rows), all.div_ceil(panels));
    let buffers = Disjoint::new(buffers);
    pool.each(row_chunks * panel_chunks, |member, item| {
        let (row, panel) = (item % row_chunks * rows, item / row_chunks * panels);
        let (rows, panels) = (row..m.min(row + rows), panel..all.min(panel + panels));
        // SAFETY: each member has a buffer of its own.
        let buffer = unsafe { buffers.range(member * MEMBER_FLOATS, MEMBER_FLOATS) };
        // SAFETY: CPU features as promised by the caller; each item has its own part of y.
        unsafe { product.part(rows, panels, buffer) };
    });
}

/// One call's operands.
struct Product<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    x: Halves<'a>,
    w: WeightsView<'a>,
}

impl Product<'_> {
    /// Computes the given rows and panels of y.
    ///
    /// # Safety
    /// The CPU has AVX-512BW and AMX-BF16, which this process may use; nobody else touches this part of y.
    unsafe fn part(&self, rows: Range<usize>, panels: Range<usize>, buffer: &mut [f32]) {
        let k = self.w.columns();
        let (tiles, sums) = buffer.split_at_mut(2 * PANEL_FLOATS);
        // Blocks of 32 rows and a last one of what is left, each kind with tiles of its own shape.
        let whole = rows.start..rows.end - rows.len() % ROWS;
        for rows in [whole.clone(), whole.end..rows.end] {
            if rows.is_empty() {
                continue;
            }
            // SAFETY: (all) CPU features as promised by the caller.
            unsafe { configure(&config(rows.len().min(ROWS))) };
            for from in (0..k).step_by(BLOCK) {
                let columns = from..k.min(from + BLOCK);
                for first in panels.clone().step_by(2) {
                    let pair = first..panels.end.min(first + 2);
                    for (panel, tiles) in pair.clone().zip(tiles.chunks_exact_mut(PANEL_FLOATS)) {
                        // SAFETY: as above.
                        unsafe { self.unpack(panel, &columns, tiles) };
                    }
                    // SAFETY: as above; the tiles are these panels' columns.
                    unsafe { self.pair(&rows, &pair, &columns, tiles, sums) };
                }
            }
            // SAFETY: as above.
            unsafe { release() };
        }
    }

    /// Columns of a panel as tiles, zeros up to whole ones.
    ///
    /// # Safety
    /// The CPU has AVX-512BW.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn unpack(&self, panel: usize, columns: &Range<usize>, tiles: &mut [f32]) {
        let steps = columns.len().div_ceil(2);
        let padded = columns.len().next_multiple_of(DEPTH) / 2;
        tiles[steps * PANEL..padded * PANEL].fill(0.0);
        if self.w.rows() - panel * PANEL < PANEL {
            return unpack_pairs(self.w, panel, columns.start, &mut tiles[..steps * PANEL]);
        }
        let bytes = &self.w.panel(panel)[32 * columns.start..32 * columns.end];
        let pairs = bytes.chunks_exact(64).zip(tiles.chunks_exact_mut(PANEL));
        // SAFETY: 64 bytes on either side.
        pairs.for_each(|(two, to)| unsafe {
            _mm512_storeu_si512(to.as_mut_ptr().cast(), paired(two.as_ptr()))
        });
        if columns.len() % 2 == 1 {
            unpack_pairs(self.w, panel, columns.end - 1, &mut tiles[(steps - 1) * PANEL..steps * PANEL]);
        }
    }

    /// Adds (or, from column 0, writes) what `columns` contribute to one or two panels of y.
    ///
    /// # Safety
    /// As [`Product::part`]; `tiles` are these columns, and the tiles are configured for these rows.
    unsafe fn pair(
        &self,
        rows: &Range<usize>,
        panels: &Range<usize>,
        columns: &Range<usize>,
        tiles: &[f32],
        sums: &mut [f32],
    ) {
        // A last panel of fewer rows is computed aside: y must keep what lies beyond the last row of W.
        let narrow = !self.w.rows().is_multiple_of(PANEL) && panels.end * PANEL > self.w.rows();
        let wide = panels.len() - usize::from(narrow);
        for from in rows.clone().step_by(ROWS) {
            let height = ROWS.min(rows.end - from);
            let block = |panel: usize, add, y, y_stride: usize| Block {
                x: self.x.values[from * self.x.stride + columns.start..].as_ptr(),
                x_bytes: 2 * self.x.stride,
                w: tiles[(panel - panels.start) * PANEL_FLOATS..].as_ptr().cast(),
                panel_bytes: 4 * PANEL_FLOATS,
                steps: columns.len().div_ceil(DEPTH),
                add,
                y,
                y_bytes: 4 * y_stride,
            };
            if wide > 0 {
                let y = self.y.pointer(from * self.y_stride + panels.start * PANEL);
                // SAFETY: the caller's promises; these panels of y are whole.
                unsafe { block(panels.start, columns.start > 0, y, self.y_stride).run(height, wide) };
            }
            if narrow {
                let panel = panels.end - 1;
                let (width, add) = (self.w.rows() - panel * PANEL, columns.start > 0);
                let y_row = |row: usize| {
                    // SAFETY: these values of y are ours, and held one row at a time.
                    unsafe { self.y.range(row * self.y_stride + panel * PANEL, width) }
                };
                let each = || (from..from + height).enumerate();
                if add {
                    each().for_each(|(i, row)| sums[i * PANEL..][..width].copy_from_slice(y_row(row)));
                }
                // SAFETY: the caller's promises; `sums` has 32 rows of sixteen.
                unsafe { block(panel, add, sums.as_mut_ptr(), PANEL).run(height, 1) };
                each().for_each(|(i, row)| y_row(row).copy_from_slice(&sums[i * PANEL..][..width]));
            }
        }
    }
}

const _: () = assert!(TILE_BYTES == 4 * PANEL * DEPTH / 2, "a tile is 32 columns of a panel");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amx::emulator;
    use crate::{Memory, Path, Weights, affinity};
    use half::bf16;
    use hwprofiles::{DType, units::Bytes};

    fn noise(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i + seed) * 2_654_435_761 % 65_521) as f32 / 32_768.0 - 1.0).collect()
    }

    /// One output in the order of TDPBF16PS: 32 columns at a time, even and odd ones apart. Products of bf16 are exact in
    /// f32, and none here is subnormal.
    fn reference(x: &[f32], w: &[f32]) -> f32 {
        let round = |value: f32| bf16::from_f32(value).to_f32();
        let mut sum = 0.0f32;
        for (x, w) in x.chunks(DEPTH).zip(w.chunks(DEPTH)) {
            let mut halves = [0.0f32; 2];
            for (i, (x, w)) in x.iter().zip(w).enumerate() {
                halves[i % 2] += round(*x) * round(*w);
            }
            sum += halves[0] + halves[1];
        }
        sum
    }

    fn check(members: usize, m: usize, n: usize, k: usize) {
        let cores = affinity::available_cores();
        let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
        let pool = Pool::new(&cores).expect("our cores");
        let (x_stride, y_stride) = (k + 3, n + 5);
        let (x, w) = (noise(m * x_stride, 1), noise(n * k, 2));
        let memory = Memory::new("test", Bytes::new(1 << 30));
        let weights = Weights::from_f32(&memory, DType::Bf16, n, k, &w).expect("fits");
        let mut scratch = vec![f32::NAN; crate::gemm::scratch_bytes(members, m, k) / 4];
        let mut y = vec![7.0; m * y_stride];
        let shared = Disjoint::new(&mut y);
        // SAFETY: the caller looked for AVX-512BW, and AMX works, in the processor or by the emulator.
        unsafe { gemm(&pool, m, &shared, y_stride, &x, x_stride, weights.view(), &mut scratch) };
        for (i, row) in y.chunks(y_stride).enumerate() {
            for (j, &got) in row.iter().enumerate() {
                let wanted = if j < n { reference(&x[i * x_stride..][..k], &w[j * k..][..k]) } else { 7.0 };
                assert_eq!(got.to_bits(), wanted.to_bits(), "{m}×{n}×{k} at ({i}, {j}): {got}, not {wanted}");
            }
        }
    }

    #[test]
    fn every_output_is_the_bits_of_the_definition_in_the_order_of_the_instruction() {
        if !Path::Avx512.is_supported() {
            return println!("AMX: absent, and so is AVX-512, by which the tiles are filled");
        }
        println!("AMX: {}", emulator::provide());
        for m in [1, 2, 15, 16, 17, 31, 32, 33, 47, 65] {
            for (n, k) in [(1, 1), (15, 31), (16, 32), (17, 33), (32, 64), (33, 30), (50, 95)] {
                check(1, m, n, k);
            }
        }
        for (m, n, k) in [(3, 20, BLOCK - 1), (40, 33, BLOCK), (5, 47, BLOCK + 1), (33, 18, 2 * BLOCK + 35)] {
            check(1, m, n, k);
            check(2, m, n, k);
        }
    }
}
