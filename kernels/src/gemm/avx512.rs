//! Blocking and sharing of work around the micro-kernel of 512-bit vectors, as in `avx2` but by two panels at a time.

use super::avx2::{BUFFER, copy_x, even_tiles, padded_stride};
use super::expand::expand_plainly;
use super::group::{Group, each_part};
use super::rounded::Halves;
use crate::disjoint::Disjoint;
use crate::wide_tile::{Float, Paired, Step, TILE_ROWS, Tile, Widened};
use crate::{PANEL, Pool, WeightsView};
use hwprofiles::DType;
use std::ops::Range;

/// Bytes of a block of two panels, which stay in the first-level cache while rows pass by.
const BLOCK: usize = 24 << 10;
/// Bytes of x that stay in the second-level cache: all of it, then each panel is read once.
const CACHED_X: usize = 256 << 10;

/// How far ahead of a streamed panel memory is asked, in bytes; two panels stream at once.
const AHEAD: usize = 8 << 10;

/// A step that blocks are made of.
trait Source: Step {
    /// The step in which a last panel of fewer rows, or a last column without a partner, is unpacked.
    type Last: Step;

    /// Unpacks columns of the given panel, from `from` on, into `out`: 64 bytes a step, zeros where there is nothing.
    fn unpack(w: WeightsView<'_>, panel: usize, from: usize, out: &mut [f32]) {
        w.unpack(panel, from, out);
    }
}

impl Source for Float {
    type Last = Float;
}

impl Source for Widened {
    type Last = Float;
}

impl Source for Paired {
    type Last = Paired;

    fn unpack(w: WeightsView<'_>, panel: usize, from: usize, out: &mut [f32]) {
        expand_plainly(w, panel, from, out);
    }
}

/// y = x·Wᵀ, x and the sums in f32.
pub(super) fn gemm(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    groups: &[Group<'_>],
    scratch: &mut [f32],
) {
    let Some((m, w)) = groups.last().map(|last| (last.rows.end, last.w)) else { return };
    let (buffers, rest) = scratch.split_at_mut(pool.members() * BUFFER * PANEL);
    let (mut x, mut x_stride) = (x, x_stride);
    if m > 1 && !x_stride.is_multiple_of(16) || x_stride.is_multiple_of(512) {
        copy_x(pool, m, w.columns(), x, x_stride, rest);
        (x, x_stride) = (rest, padded_stride(w.columns()));
    }
    match w.dtype() {
        DType::F32 => Product { y, y_stride, x, x_stride, w }.run::<Float>(pool, groups, buffers),
        _ => Product { y, y_stride, x, x_stride, w }.run::<Widened>(pool, groups, buffers),
    }
}

/// y = x·Wᵀ of bf16 weights, x rounded to bf16, the sums in f32: for each output two by two, as VDPBF16PS adds.
pub(super) fn gemm_bf16(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: &[f32],
    x_stride: usize,
    groups: &[Group<'_>],
    scratch: &mut [f32],
) {
    let Some((m, w)) = groups.last().map(|last| (last.rows.end, last.w)) else { return };
    let (buffers, rest) = scratch.split_at_mut(pool.members() * BUFFER * PANEL);
    let x = Halves::new(pool, m, w.columns(), x, x_stride, rest);
    let (x_stride, x) = (x.stride / 2, bytemuck::cast_slice(x.values));
    Product { y, y_stride, x, x_stride, w }.run::<Paired>(pool, groups, buffers);
}

/// One product's operands.
#[derive(Clone, Copy)]
struct Product<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    /// Rows of f32, or of pairs of bf16.
    x: &'a [f32],
    x_stride: usize,
    w: WeightsView<'a>,
}

impl Product<'_> {
    fn run<S: Source>(&self, pool: &Pool, groups: &[Group<'_>], buffers: &mut [f32]) {
        let buffers = Disjoint::new(buffers);
        each_part(pool, groups, TILE_ROWS, 2, |member, w, rows, panels| {
            // SAFETY: each member has a buffer of its own.
            let buffer = unsafe { buffers.range(member * BUFFER * PANEL, BUFFER * PANEL) };
            Product { w, ..*self }.part::<S>(rows, panels, buffer);
        });
    }

    /// Computes the given rows and panels of y, which are ours.
    fn part<S: Source>(&self, rows: Range<usize>, panels: Range<usize>, buffer: &mut [f32]) {
        let k = self.w.columns();
        let steps = k / S::COLUMNS;
        let streamed = rows.len() <= TILE_ROWS;
        let block = if streamed { steps.max(1) } else { BLOCK / 2 / S::BYTES };
        let blocks = (0..steps.div_ceil(block)).map(|i| i * block..steps.min((i + 1) * block));
        let whole = panels.start..panels.end.min(self.w.rows() / PANEL);
        let pairs = whole.clone().step_by(2).map(|panel| panel..whole.end.min(panel + 2));
        if 4 * rows.len() * k * S::VALUES / S::COLUMNS <= CACHED_X {
            for pair in pairs.clone() {
                for steps in blocks.clone() {
                    // Streamed panels go on where they are; else the same panels' next block is next.
                    let ahead = if streamed { AHEAD } else { steps.len() * S::BYTES };
                    self.block::<S>(&rows, pair.clone(), steps, ahead);
                }
            }
        } else {
            for steps in blocks {
                for pair in pairs.clone() {
                    self.block::<S>(&rows, pair.clone(), steps.clone(), pair.len() * self.panel_bytes());
                }
            }
        }
        if steps * S::COLUMNS < k {
            let last = steps * S::COLUMNS..k;
            whole.clone().for_each(|panel| self.unpacked::<S>(&rows, panel, last.clone(), buffer));
        }
        if whole.end < panels.end {
            self.unpacked::<S>(&rows, whole.end, 0..k, buffer);
        }
    }

    fn panel_bytes(&self) -> usize {
        self.w.dtype().matrix_bytes(PANEL as u64, self.w.columns() as u64).get() as usize
    }

    /// Adds (or, from step 0, writes) what some steps contribute to one or two whole panels, while what lies `ahead` bytes
    /// further on is fetched.
    fn block<S: Source>(&self, rows: &Range<usize>, panels: Range<usize>, steps: Range<usize>, ahead: usize) {
        let w = self.w.panel(panels.start)[steps.start * S::BYTES..].as_ptr();
        for (tile, rows) in even_tiles(rows, TILE_ROWS).enumerate() {
            let tile = Tile {
                x: self.x[rows.start * self.x_stride + steps.start * S::VALUES..].as_ptr(),
                x_stride: self.x_stride,
                w,
                panel_bytes: self.panel_bytes(),
                steps: steps.len(),
                add: steps.start > 0,
                y: self.y.pointer(rows.start * self.y_stride + panels.start * PANEL),
                y_stride: self.y_stride,
                ahead: if tile == 0 { w.wrapping_add(ahead) } else { std::ptr::null() },
            };
            // SAFETY: the path's CPUs have the instructions; the panels have these steps, x these rows; y's are ours.
            unsafe { tile.run::<S>(rows.len(), panels.len()) };
        }
    }

    /// As `block`, of columns that must be unpacked: those of a panel of fewer rows, or a last one without a partner.
    fn unpacked<S: Source>(
        &self,
        rows: &Range<usize>,
        panel: usize,
        columns: Range<usize>,
        buffer: &mut [f32],
    ) {
        let height = PANEL.min(self.w.rows() - panel * PANEL);
        let most = BUFFER * S::Last::COLUMNS;
        for from in columns.clone().step_by(most) {
            let steps = (columns.end.min(from + most) - from).div_ceil(S::Last::COLUMNS);
            S::unpack(self.w, panel, from, &mut buffer[..steps * PANEL]);
            for rows in even_tiles(rows, TILE_ROWS) {
                // Sixteen wide, unlike y, which must keep what lies beyond the last row of W.
                let mut sums = [0.0; TILE_ROWS * PANEL];
                let tile = Tile {
                    x: self.x[rows.start * self.x_stride + from * S::VALUES / S::COLUMNS..].as_ptr(),
                    x_stride: self.x_stride,
                    w: buffer.as_ptr().cast(),
                    panel_bytes: 0,
                    steps,
                    add: false,
                    y: sums.as_mut_ptr(),
                    y_stride: PANEL,
                    ahead: std::ptr::null(),
                };
                // SAFETY: the buffer has these steps; the rest as in `block`.
                unsafe { tile.run::<S::Last>(rows.len(), 1) };
                for (row, sums) in rows.zip(sums.chunks_exact(PANEL)) {
                    // SAFETY: these values of y are ours.
                    let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, height) };
                    y.iter_mut().zip(sums).for_each(|(y, sum)| *y = if from > 0 { *y + sum } else { *sum });
                }
            }
        }
    }
}
