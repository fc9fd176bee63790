//! Products with 256-bit vectors: blocking, and division into items of work.
//!
//! For large m, a chunk of x (up to `CHUNK_ROWS` rows of a block of columns) stays in the
//! second-level cache while panels pass by. Each block of a panel (16 KiB) stays in the first-level
//! cache while the rows pass by. For small m, all of x stays in the second-level cache, and each
//! panel is read from memory once. Weights are widened on the way into registers, so they are never
//! unpacked to memory.

use super::blocking::{
    BUFFER, CACHED_X, CHUNK_ROWS, copy_x, even_tiles, evenly_scaled, needs_copy, padded_stride, tile_scales,
};
use super::group::{GemmGroup, each_part};
use super::int16_input::Int16Rows;
use super::integer::{IntegerInstructions, IntegerTile};
use crate::cpu::strided::StridedRows;
use crate::cpu::tiles::avx2::{Avx2Tile, Bf16Panel, F32Columns, F32Panel, Fetch, TILE_ROWS, WeightColumns};
use crate::cpu::tiles::float8::{Float8Columns, UNIT};
use crate::cpu::tiles::scales::TileScales;
use crate::cpu::weights::{PANEL, WeightsView};
use crate::runtime::{Disjoint, Pool};
use hwprofiles::DType;
use std::ops::Range;

/// Columns of a block: 16 KiB of the panel, or less where x would not fit beside it.
fn block(dtype: DType, instructions: IntegerInstructions) -> usize {
    match (dtype, instructions) {
        (DType::F32, _) => 256,
        (DType::Bf16, _) | (_, IntegerInstructions::Vnni) => 512,
        _ => 1024,
    }
}

/// The operands of one product.
#[derive(Clone, Copy)]
struct Avx2Product<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    x: StridedRows<'a>,
    /// x as the integer kernel reads it, for integer weights.
    rounded: Option<Int16Rows<'a>>,
    /// The instructions that multiply integers.
    instructions: IntegerInstructions,
    w: WeightsView<'a>,
}

pub(super) fn gemm(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: StridedRows<'_>,
    groups: &[GemmGroup<'_>],
    scratch: &mut [f32],
) {
    let Some((m, w)) = groups.last().map(|last| (last.rows.end, last.w)) else { return };
    let k = w.columns();
    let (buffers, rest) = scratch.split_at_mut(pool.members() * BUFFER * PANEL);
    let instructions = IntegerInstructions::Avx2;
    let mut product = Avx2Product { y, y_stride, x, rounded: None, instructions, w };
    if matches!(w.dtype(), DType::Int8 | DType::Int4) {
        product.rounded = Some(Int16Rows::new(pool, m, k, x, rest));
        product.instructions = IntegerInstructions::for_path(pool.path());
    } else if needs_copy(m, x.stride) {
        copy_x(pool, m, k, x, rest);
        product.x = StridedRows::new(rest, padded_stride(k));
    }
    let buffers = Disjoint::new(buffers);
    each_part(pool, groups, (product.instructions.tile_rows(), CHUNK_ROWS), 1, |member, w, rows, panels| {
        // SAFETY: each member has a buffer of its own.
        let buffer = unsafe { buffers.range(member * BUFFER * PANEL, BUFFER * PANEL) };
        // SAFETY: a CPU that runs this path has AVX2, FMA and F16C; each item has its own part of
        // y.
        unsafe { Avx2Product { w, ..product }.part(rows, panels, buffer) };
    });
}

impl Avx2Product<'_> {
    /// Computes the given rows and panels of y.
    ///
    /// # Safety
    /// The CPU has AVX2, FMA and F16C; nobody else touches this part of y.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn part(&self, rows: Range<usize>, panels: Range<usize>, buffer: &mut [f32]) {
        let k = self.w.columns();
        let streamed = rows.len() <= self.instructions.tile_rows();
        let block = if streamed { k } else { block(self.w.dtype(), self.instructions) };
        let blocks = (0..k.div_ceil(block)).map(|i| i * block..k.min((i + 1) * block));
        let mut one = |panel, columns| {
            // SAFETY: the caller's promises.
            unsafe { self.block(&rows, panel, columns, buffer) }
        };
        if rows.len() * k <= CACHED_X {
            for panel in panels {
                blocks.clone().for_each(|columns| one(panel, columns));
            }
        } else {
            for columns in blocks {
                panels.clone().for_each(|panel| one(panel, columns.clone()));
            }
        }
    }

    /// Adds the contribution of a range of columns to one panel of y; from column 0 it overwrites
    /// y.
    ///
    /// # Safety
    /// As [`Avx2Product::part`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(&self, rows: &Range<usize>, panel: usize, columns: Range<usize>, buffer: &mut [f32]) {
        if self.w.rows() - panel * PANEL < PANEL {
            for from in columns.clone().step_by(BUFFER) {
                let part = from..columns.end.min(from + BUFFER);
                self.w.unpack(panel, from, &mut buffer[..part.len() * PANEL]);
                // SAFETY: the caller's promises.
                unsafe { self.last_panel(rows, panel, part, buffer) };
            }
            return;
        }
        let bytes = self.w.panel(panel);
        // Where several tiles use a block, the first tile prefetches the next block, so that memory
        // works while the other tiles compute.
        let fetch = match (self.w.dtype(), rows.len()) {
            (DType::F32, ..=TILE_ROWS) | (DType::Int8, 1) => Fetch::Near,
            _ => Fetch::Far,
        };
        for (tile, rows) in even_tiles(rows, self.instructions.tile_rows()).enumerate() {
            let y = self.y.pointer(rows.start * self.y_stride + panel * PANEL);
            // Only for the first tile the weights are not in the first-level cache yet.
            let fetch = if tile == 0 { fetch } else { Fetch::Nothing };
            let columns = columns.clone();
            // SAFETY: a full panel has these columns; the rest is the caller's promise.
            unsafe {
                match (self.w.dtype(), self.rounded) {
                    (dtype, Some(x)) => {
                        let (panel, y_stride) = (bytes, self.y_stride);
                        let tile = IntegerTile { x, rows, panel, columns, y, y_stride, fetch };
                        tile.run(self.instructions, dtype);
                    }
                    (DType::Bf16, None) => {
                        let start = bytes[32 * columns.start..].as_ptr();
                        let w = Bf16Panel { start, fetch };
                        self.tile(rows, &columns, w, TileScales::NONE, y, self.y_stride);
                    }
                    (DType::Fp8 | DType::Fp8Block, None) => {
                        for columns in evenly_scaled(self.w, columns, usize::MAX) {
                            let start = bytes[self.w.header_bytes() + 16 * columns.start..].as_ptr();
                            let w = Float8Columns { start, fetch };
                            let scales = tile_scales(self.w, panel, columns.start, UNIT);
                            self.tile(rows.clone(), &columns, w, scales, y, self.y_stride);
                        }
                    }
                    (_, None) => {
                        let start = bytes[64 * columns.start..].as_ptr();
                        let w = F32Panel { start, fetch };
                        self.tile(rows, &columns, w, TileScales::NONE, y, self.y_stride);
                    }
                }
            }
        }
    }

    /// Computes one tile: up to six rows of x times `w`, which starts at the first of `columns`.
    ///
    /// # Safety
    /// As [`Avx2Product::part`]. `w` has these columns; `y` has these rows of sixteen values, which
    /// belong to this item.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn tile<L: WeightColumns>(
        &self,
        rows: Range<usize>,
        columns: &Range<usize>,
        w: L,
        scales: TileScales,
        y: *mut f32,
        y_stride: usize,
    ) {
        let x = self.x.values[rows.start * self.x.stride + columns.start..].as_ptr();
        let tile = Avx2Tile { x, x_stride: self.x.stride, w, scales, y, y_stride, add: columns.start > 0 };
        // SAFETY: x has these rows; the rest is the caller's promise.
        unsafe { tile.run(rows.len(), columns.len()) };
    }

    /// Computes columns of a last panel of fewer than sixteen rows, which are unpacked in `buffer`.
    ///
    /// # Safety
    /// As [`Avx2Product::part`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn last_panel(&self, rows: &Range<usize>, panel: usize, columns: Range<usize>, buffer: &[f32]) {
        let w = F32Columns { start: buffer.as_ptr(), stride: PANEL };
        let height = self.w.rows() - panel * PANEL;
        for rows in even_tiles(rows, TILE_ROWS) {
            // The sums are sixteen wide, because y must keep the values beyond the last row of W.
            let mut sums = [0.0; TILE_ROWS * PANEL];
            for (row, sums) in rows.clone().zip(sums.chunks_exact_mut(PANEL)) {
                // SAFETY: these values of y belong to this item by the caller's promise.
                let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, height) };
                sums[..height].copy_from_slice(y);
            }
            // SAFETY: `sums` is whole; the buffer has these columns; the CPU has the promised
            // features.
            unsafe { self.tile(rows.clone(), &columns, w, TileScales::NONE, sums.as_mut_ptr(), PANEL) };
            for (row, sums) in rows.zip(sums.chunks_exact(PANEL)) {
                // SAFETY: as above.
                let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, height) };
                y.copy_from_slice(&sums[..height]);
            }
        }
    }
}
