//! Products with AMX tiles: blocking, and division into items of work.
//!
//! x is rounded to bf16 once. 32 columns of a packed bf16 panel already lie in memory as a tile
//! (see `weights`). Integer weights are expanded to such tiles, one block of a pair of panels at a
//! time (see `expand`). The block stays in the caches while the rows of a chunk of x, which stays
//! in the second level, pass by.

use super::amx_tile::{AmxBlock, TILE_BYTES, TILE_ROWS, config, configure, release};
use super::bf16_input::{Bf16Rows, DEPTH};
use super::expand::expand;
use super::group::{GemmGroup, each_part};
use crate::cpu::strided::StridedRows;
use crate::cpu::weights::{PANEL, WeightsView};
use crate::runtime::{Disjoint, Pool};
use hwprofiles::DType;
use std::ops::Range;

/// Columns of a block: 64 KiB of two panels.
const BLOCK: usize = 1024;
/// Floats of one tile.
const TILE: usize = TILE_BYTES / 4;
/// Rows of one block of outputs.
const ROWS: usize = 2 * TILE_ROWS;
/// Floats of a panel's block.
const PANEL_FLOATS: usize = BLOCK / DEPTH * TILE;

/// Floats of one member's buffer: a block of two panels as tiles, and sums for a panel of fewer
/// than sixteen rows.
pub(super) const MEMBER_FLOATS: usize = 2 * PANEL_FLOATS + ROWS * PANEL;

/// y = x·Wᵀ with bf16 or integer weights. x and the weights are rounded to bf16; the sums are f32
/// in the order of TDPBF16PS.
///
/// # Safety
/// The CPU has AMX-BF16 and AVX2, and this process may use the tiles.
pub(super) unsafe fn gemm(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: StridedRows<'_>,
    groups: &[GemmGroup<'_>],
    scratch: &mut [f32],
) {
    let Some((m, w)) = groups.last().map(|last| (last.rows.end, last.w)) else { return };
    let (buffers, rest) = scratch.split_at_mut(pool.members() * MEMBER_FLOATS);
    let product = AmxProduct { y, y_stride, x: Bf16Rows::new(pool, m, w.columns(), x, rest), w };
    let buffers = Disjoint::new(buffers);
    each_part(pool, groups, ROWS, 2, |member, w, rows, panels| {
        // SAFETY: each member has a buffer of its own.
        let buffer = unsafe { buffers.range(member * MEMBER_FLOATS, MEMBER_FLOATS) };
        // SAFETY: the caller promises the CPU features; each item has its own part of y.
        unsafe { AmxProduct { w, ..product }.part(rows, panels, buffer) };
    });
}

/// The operands of one product.
#[derive(Clone, Copy)]
struct AmxProduct<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    x: Bf16Rows<'a>,
    w: WeightsView<'a>,
}

impl AmxProduct<'_> {
    /// Computes the given rows and panels of y.
    ///
    /// # Safety
    /// The CPU has AMX-BF16, which this process may use; nobody else touches this part of y.
    unsafe fn part(&self, rows: Range<usize>, panels: Range<usize>, buffer: &mut [f32]) {
        let k = self.w.columns();
        // Blocks of 32 rows, and a last block of the remaining rows; each kind has tiles of its own
        // shape.
        let whole = rows.start..rows.end - rows.len() % ROWS;
        let kinds = [whole.clone(), whole.end..rows.end].into_iter().filter(|rows| !rows.is_empty());
        let (tiles, sums) = buffer.split_at_mut(2 * PANEL_FLOATS);
        let mut shape = 0;
        for from in (0..k).step_by(BLOCK) {
            for first in panels.clone().step_by(2) {
                let pair =
                    PanelPair::new(self.w, first..panels.end.min(first + 2), from..k.min(from + BLOCK));
                pair.expand(self.w, tiles);
                for rows in kinds.clone() {
                    // SAFETY: (all) the caller promises the CPU features.
                    unsafe {
                        if shape != rows.len().min(ROWS) {
                            shape = rows.len().min(ROWS);
                            configure(&config(shape));
                        }
                        self.pair(&rows, &pair, tiles, sums);
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { release() };
    }

    /// Adds the contribution of a pair of panels' columns to y; from column 0 it overwrites y.
    ///
    /// # Safety
    /// As [`AmxProduct::part`]. The tiles are configured for these rows, and `expanded` is the
    /// expansion of the pair.
    unsafe fn pair(&self, rows: &Range<usize>, pair: &PanelPair, expanded: &[f32], sums: &mut [f32]) {
        if !pair.wide.is_empty() {
            if !pair.packed.is_empty() {
                let tiles = self.w.panel(pair.wide.start)[32 * pair.packed.start..].as_ptr();
                let panel_bytes = self.w.panel(pair.wide.start).len();
                // SAFETY: the caller's promises; the panels have these columns.
                unsafe { self.blocks(rows, &pair.wide, &pair.packed, tiles, panel_bytes) };
            }
            if !pair.rest.is_empty() {
                // SAFETY: the caller's promises; the buffer has tiles of each panel.
                unsafe {
                    self.blocks(rows, &pair.wide, &pair.rest, expanded.as_ptr().cast(), 4 * PANEL_FLOATS)
                };
            }
        }
        if let Some(panel) = pair.narrow {
            let columns = pair.packed.start..pair.rest.end;
            let tiles = expanded[pair.wide.len() * PANEL_FLOATS..].as_ptr();
            // SAFETY: the caller's promises.
            unsafe { self.narrow(rows, panel, &columns, tiles.cast(), sums) };
        }
    }

    /// As `pair`, for whole panels whose columns are tiles at `tiles`. The second panel's tiles lie
    /// `panel_bytes` after the first's.
    ///
    /// # Safety
    /// As [`AmxProduct::pair`]; the tiles are there.
    unsafe fn blocks(
        &self,
        rows: &Range<usize>,
        panels: &Range<usize>,
        columns: &Range<usize>,
        tiles: *const u8,
        panel_bytes: usize,
    ) {
        for from in rows.clone().step_by(ROWS) {
            let block = AmxBlock {
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

    /// As `pair`, for a last panel of fewer than sixteen rows. It is computed in `sums`, because y
    /// must keep the values beyond the last row of W.
    ///
    /// # Safety
    /// As [`AmxProduct::pair`]; all of the panel's columns are tiles at `tiles`.
    unsafe fn narrow(
        &self,
        rows: &Range<usize>,
        panel: usize,
        columns: &Range<usize>,
        tiles: *const u8,
        sums: &mut [f32],
    ) {
        let (width, add) = (self.w.rows() - panel * PANEL, columns.start > 0);
        let y_row = |row: usize| {
            // SAFETY: these values of y belong to this item, which holds one row at a time.
            unsafe { self.y.range(row * self.y_stride + panel * PANEL, width) }
        };
        for from in rows.clone().step_by(ROWS) {
            let each = || (from..rows.end.min(from + ROWS)).enumerate();
            if add {
                each().for_each(|(i, row)| sums[i * PANEL..][..width].copy_from_slice(y_row(row)));
            }
            let block = AmxBlock {
                x: self.x.values[from * self.x.stride + columns.start..].as_ptr(),
                x_bytes: 2 * self.x.stride,
                w: tiles,
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
}

/// A block of columns of one or two panels.
struct PanelPair {
    /// Whole panels.
    wide: Range<usize>,
    /// A last panel of fewer than sixteen rows.
    narrow: Option<usize>,
    /// Columns of whole panels that already lie in memory as tiles, and the columns after them that
    /// must be expanded.
    packed: Range<usize>,
    rest: Range<usize>,
}

impl PanelPair {
    fn new(w: WeightsView<'_>, panels: Range<usize>, columns: Range<usize>) -> Self {
        let wide = panels.start..panels.end.min(w.rows() / PANEL);
        let narrow = Some(wide.end).filter(|&panel| panel < panels.end);
        let middle = match w.dtype() {
            DType::Bf16 => columns.end - columns.len() % DEPTH,
            _ => columns.start,
        };
        Self { wide, narrow, packed: columns.start..middle, rest: middle..columns.end }
    }

    /// Writes the columns that are not packed as tiles, padded with zeros to whole tiles. The tiles
    /// of the second panel start [`PANEL_FLOATS`] after those of the first.
    fn expand(&self, w: WeightsView<'_>, tiles: &mut [f32]) {
        let all = self.packed.start..self.rest.end;
        let each =
            self.wide.clone().map(|panel| (panel, &self.rest)).chain(self.narrow.map(|panel| (panel, &all)));
        for ((panel, columns), tiles) in each.zip(tiles.chunks_exact_mut(PANEL_FLOATS)) {
            expand(w, panel, columns, &mut tiles[..columns.len().div_ceil(DEPTH) * TILE]);
        }
    }
}

const _: () = assert!(TILE_BYTES == 4 * PANEL * DEPTH / 2, "a tile is 32 columns of a panel");

#[cfg(test)]
mod tests {
    use super::super::expand::has_vector_expand;
    use super::*;
    use crate::cpu::amx::emulator;
    use crate::cpu::weights::Weights;
    use crate::runtime::{MemoryArena, Path, affinity};
    use half::bf16;
    use hwprofiles::units::Bytes;

    fn noise(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i + seed) * 2_654_435_761 % 65_521) as f32 / 32_768.0 - 1.0).collect()
    }

    /// One output in the order of TDPBF16PS: 32 columns at a time, even and odd columns in separate
    /// sums. Products of bf16 are exact in f32, and none here is subnormal.
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

    fn check(dtype: DType, members: usize, m: usize, n: usize, k: usize) {
        let cores = affinity::available_cores();
        let cores: Vec<_> = (0..members).map(|member| cores[member % cores.len()]).collect();
        let pool = Pool::new(&cores).expect("our cores");
        let (x_stride, y_stride) = (k + 3, n + 5);
        let (x, w) = (noise(m * x_stride, 1), noise(n * k, 2));
        let memory = MemoryArena::new("test", Bytes::new(1 << 30));
        let weights = Weights::from_f32(&memory, dtype, n, k, &w).expect("fits");
        let mut lines = vec![0.0; n * k];
        lines.chunks_exact_mut(k).enumerate().for_each(|(row, line)| weights.view().row(row, line));
        let mut scratch = vec![f32::NAN; super::super::scratch_bytes(members, m, k) / 4];
        let mut y = vec![7.0; m * y_stride];
        let shared = Disjoint::new(&mut y);
        // Two groups with the same matrix are one product, row by row.
        let group = |rows: Range<usize>| GemmGroup { rows, w: weights.view() };
        let groups: Vec<_> =
            [0..m / 3, m / 3..m].into_iter().filter(|it| !it.is_empty()).map(group).collect();
        // SAFETY: the caller looked for AVX2. AMX works, in the processor or by the emulator.
        unsafe { gemm(&pool, &shared, y_stride, StridedRows::new(&x, x_stride), &groups, &mut scratch) };
        for (i, row) in y.chunks(y_stride).enumerate() {
            for (j, &got) in row.iter().enumerate() {
                let wanted =
                    if j < n { reference(&x[i * x_stride..][..k], &lines[j * k..][..k]) } else { 7.0 };
                assert_eq!(
                    got.to_bits(),
                    wanted.to_bits(),
                    "{dtype} {m}×{n}×{k} at ({i}, {j}): {got}, not {wanted}"
                );
            }
        }
    }

    #[test]
    fn every_output_is_the_bits_of_the_definition_in_the_order_of_the_instruction() {
        if !Path::Avx2.is_supported() {
            return println!("absent: this CPU has no AVX2, by which x is rounded");
        }
        println!("AMX: {}", emulator::provide());
        println!(
            "expansion by AVX-512 BF16: {}",
            if has_vector_expand() { "real" } else { "absent, plain instead" }
        );
        for dtype in [DType::Bf16, DType::Fp8, DType::Int8, DType::Int4] {
            for m in [1, 2, 15, 16, 17, 31, 32, 33, 47, 65] {
                for (n, k) in [(1, 1), (15, 31), (16, 32), (17, 33), (32, 64), (33, 30), (50, 95)] {
                    check(dtype, 1, m, n, k);
                }
            }
            for (m, n, k) in
                [(3, 20, BLOCK - 1), (40, 33, BLOCK), (5, 47, BLOCK + 1), (33, 18, 2 * BLOCK + 35)]
            {
                check(dtype, 1, m, n, k);
                check(dtype, 2, m, n, k);
            }
        }
    }
}
