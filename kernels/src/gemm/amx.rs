//! Blocking and sharing of work around the micro-kernel of tiles.
//!
//! x is rounded to bf16 once. 32 columns of a packed panel are a tile as they lie in memory (see `weights`); a block of a pair
//! of panels stays in the caches while the rows of a chunk of x, which stays in the second level, pass by.

use super::amx_tile::{Block, TILE_BYTES, TILE_ROWS, config, configure, release};
use super::avx2::split;
use super::avx512::unpack_pairs;
use super::rounded::{DEPTH, Halves};
use crate::disjoint::Disjoint;
use crate::{PANEL, Pool, WeightsView};
use std::ops::Range;

/// Columns of a block: 64 KiB of two panels.
const BLOCK: usize = 1024;
/// Floats of one tile.
const TILE: usize = TILE_BYTES / 4;
/// Rows of one block of outputs.
const ROWS: usize = 2 * TILE_ROWS;
/// Floats of a panel's block.
const PANEL_FLOATS: usize = BLOCK / DEPTH * TILE;

/// Floats of one member's buffer: a panel of fewer than sixteen rows as tiles, and sums of it.
pub(super) const MEMBER_FLOATS: usize = PANEL_FLOATS + ROWS * PANEL;

/// y = x·Wᵀ of bf16 weights, x rounded to bf16, the sums in f32 in the order of TDPBF16PS.
///
/// # Safety
/// The CPU has AMX-BF16 and AVX2, and this process may use the tiles.
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
    /// The CPU has AMX-BF16, which this process may use; nobody else touches this part of y.
    unsafe fn part(&self, rows: Range<usize>, panels: Range<usize>, buffer: &mut [f32]) {
        let k = self.w.columns();
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
                    // SAFETY: as promised by the caller, and the tiles are configured for these rows.
                    unsafe { self.pair(&rows, first..panels.end.min(first + 2), columns.clone(), buffer) };
                }
            }
            // SAFETY: as above.
            unsafe { release() };
        }
    }

    /// Adds (or, from column 0, writes) what `columns` contribute to one or two panels of y.
    ///
    /// # Safety
    /// As [`Product::part`], and the tiles are configured for these rows.
    unsafe fn pair(
        &self,
        rows: &Range<usize>,
        panels: Range<usize>,
        columns: Range<usize>,
        buffer: &mut [f32],
    ) {
        let wide = panels.start..panels.end.min(self.w.rows() / PANEL);
        if !wide.is_empty() {
            let whole = columns.end - columns.len() % DEPTH;
            let panel_bytes = self.w.panel(wide.start).len();
            if whole > columns.start {
                let tiles = self.w.panel(wide.start)[32 * columns.start..].as_ptr();
                // SAFETY: the caller's promises; the panels have these columns.
                unsafe { self.blocks(rows, &wide, columns.start..whole, tiles, panel_bytes) };
            }
            if whole < columns.end {
                let rest = whole..columns.end;
                for (panel, tile) in wide.clone().zip(buffer.chunks_exact_mut(TILE)) {
                    self.unpack(panel, &rest, tile);
                }
                // SAFETY: the caller's promises; the buffer has a tile of each panel.
                unsafe { self.blocks(rows, &wide, rest, buffer.as_ptr().cast(), TILE_BYTES) };
            }
        }
        if wide.end < panels.end {
            // SAFETY: the caller's promises.
            unsafe { self.narrow(rows, wide.end, &columns, buffer) };
        }
    }

    /// As `pair`, of whole panels whose columns are tiles at `tiles`, the second panel's `panel_bytes` further on.
    ///
    /// # Safety
    /// As [`Product::pair`]; the tiles are there.
    unsafe fn blocks(
        &self,
        rows: &Range<usize>,
        panels: &Range<usize>,
        columns: Range<usize>,
        tiles: *const u8,
        panel_bytes: usize,
    ) {
        for from in rows.clone().step_by(ROWS) {
            let block = Block {
                x: self.x.values[from * self.x.stride + columns.start..].as_ptr(),
                x_bytes: 2 * self.x.stride,
                w: tiles,
                panel_bytes,
                steps: columns.len().div_ceil(DEPTH),
                add: columns.start > 0,
                y: self.y.pointer(from * self.y_stride + panels.start * PANEL),
                y_bytes: 4 * self.y_stride,
            };
            // SAFETY: the caller's promises; these panels of y are whole.
            unsafe { block.run(ROWS.min(rows.end - from), panels.len()) };
        }
    }

    /// As `pair`, of a last panel of fewer than sixteen rows: computed aside, since y must keep what lies beyond the last row
    /// of W.
    ///
    /// # Safety
    /// As [`Product::pair`].
    unsafe fn narrow(&self, rows: &Range<usize>, panel: usize, columns: &Range<usize>, buffer: &mut [f32]) {
        let (tiles, sums) = buffer.split_at_mut(PANEL_FLOATS);
        let (width, add) = (self.w.rows() - panel * PANEL, columns.start > 0);
        self.unpack(panel, columns, tiles);
        let y_row = |row: usize| {
            // SAFETY: these values of y are ours, and held one row at a time.
            unsafe { self.y.range(row * self.y_stride + panel * PANEL, width) }
        };
        for from in rows.clone().step_by(ROWS) {
            let each = || (from..rows.end.min(from + ROWS)).enumerate();
            if add {
                each().for_each(|(i, row)| sums[i * PANEL..][..width].copy_from_slice(y_row(row)));
            }
            let block = Block {
                x: self.x.values[from * self.x.stride + columns.start..].as_ptr(),
                x_bytes: 2 * self.x.stride,
                w: tiles.as_ptr().cast(),
                panel_bytes: 0,
                steps: columns.len().div_ceil(DEPTH),
                add,
                y: sums.as_mut_ptr(),
                y_bytes: 4 * PANEL,
            };
            // SAFETY: the caller's promises; `sums` has 32 rows of sixteen.
            unsafe { block.run(each().len(), 1) };
            each().for_each(|(i, row)| y_row(row).copy_from_slice(&sums[i * PANEL..][..width]));
        }
    }

    /// Columns of a panel as tiles, zeros up to whole ones and in place of rows that are not there.
    fn unpack(&self, panel: usize, columns: &Range<usize>, tiles: &mut [f32]) {
        let (steps, padded) = (columns.len().div_ceil(2), columns.len().next_multiple_of(DEPTH) / 2);
        unpack_pairs(self.w, panel, columns.start, &mut tiles[..steps * PANEL]);
        tiles[steps * PANEL..padded * PANEL].fill(0.0);
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
        // SAFETY: the caller looked for AVX2, and AMX works, in the processor or by the emulator.
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
        if !Path::Avx2.is_supported() {
            return println!("absent: this CPU has no AVX2, by which x is rounded");
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
