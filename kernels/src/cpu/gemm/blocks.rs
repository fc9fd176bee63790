//! Products with weights in blocks by vectors: division into items of work.
//!
//! All of x is rounded once. A panel is read once for each tile of rows: from memory by the first
//! one, and from the second-level cache by the others.

use super::blocking::{BUFFER, CHUNK_ROWS, even_tiles};
use super::group::{GemmGroup, each_part};
use crate::cpu::blocks::{BlockInstructions, BlockRows, BlockTile, TILE_ROWS};
use crate::cpu::strided::StridedRows;
use crate::cpu::tiles::avx2::Fetch;
use crate::cpu::weights::{PANEL, WeightsView};
use crate::runtime::{Disjoint, Pool};
use std::ops::Range;

/// The operands of one product.
#[derive(Clone, Copy)]
struct BlockProduct<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    x: BlockRows<'a>,
    instructions: BlockInstructions,
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
    let rest = &mut scratch[pool.members() * BUFFER * PANEL..];
    let instructions = BlockInstructions::for_path(pool.path());
    let x = BlockRows::new(pool, (m, w.columns()), w.dtype(), instructions, x, rest);
    let product = BlockProduct { y, y_stride, x, instructions, w };
    each_part(pool, groups, (TILE_ROWS, CHUNK_ROWS), 1, |_, w, rows, panels| {
        let product = BlockProduct { w, ..product };
        panels.for_each(|panel| product.panel(&rows, panel));
    });
}

impl BlockProduct<'_> {
    /// Computes the given rows of one panel's outputs, which belong to this item.
    fn panel(&self, rows: &Range<usize>, panel: usize) {
        let wide = self.w.wide_panel(panel).expect("the weights are in blocks");
        let width = PANEL.min(self.w.rows() - panel * PANEL);
        // A last panel of fewer rows is computed beside y, which keeps the values after its rows.
        let mut sums = [0.0; TILE_ROWS * PANEL];
        for (tile, rows) in even_tiles(rows, TILE_ROWS).enumerate() {
            let place = rows.start * self.y_stride + panel * PANEL;
            let (y, y_stride) = match width {
                PANEL => (self.y.pointer(place), self.y_stride),
                _ => (sums.as_mut_ptr(), PANEL),
            };
            let fetch = if tile == 0 { Fetch::Far } else { Fetch::Nothing };
            let (row, count) = (rows.start, rows.len());
            let tile = BlockTile { x: self.x, row, rows: count, panel: &wide.0, y, y_stride, fetch };
            // SAFETY: the path has the instructions; this part of y belongs to this item.
            unsafe { tile.run(self.instructions, self.w.dtype()) };
            if width < PANEL {
                for (row, sums) in rows.zip(sums.chunks_exact(PANEL)) {
                    // SAFETY: as above.
                    let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, width) };
                    y.copy_from_slice(&sums[..width]);
                }
            }
        }
    }
}
