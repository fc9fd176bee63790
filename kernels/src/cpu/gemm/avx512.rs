//! Products with 512-bit vectors: blocking and division into items as in `avx2`, but two panels at
//! a time, or eight where few rows of x stream all weights.

use super::bf16_input::Bf16Rows;
use super::blocking::{
    BUFFER, CHUNK_ROWS, copy_x, even_tiles, evenly_scaled, needs_copy, padded_stride, tile_scales,
};
use super::expand::expand_scalar;
use super::group::{GemmGroup, each_part};
use crate::cpu::strided::StridedRows;
use crate::cpu::tiles::avx512::{
    Avx512Tile, F32Step, MOST_PANELS, MOST_PANELS_ROWS, PairedBf16Step, TILE_ROWS, TileStep, WidenedBf16Step,
};
use crate::cpu::tiles::float8::{PairedFloat8Step, UNIT, WidenedFloat8Step};
use crate::cpu::tiles::scales::TileScales;
use crate::cpu::weights::{PANEL, WeightsView};
use crate::runtime::{Disjoint, Pool};
use hwprofiles::DType;
use std::ops::Range;

/// Bytes of a block of two panels, which stays in the first-level cache while rows pass by.
const BLOCK: usize = 24 << 10;
/// The number of bytes up to which all of x stays in the second-level cache. Then each panel is
/// read once.
const CACHED_X: usize = 256 << 10;

/// The distance of prefetches in streamed panels, in bytes, when two stream at once, and when
/// [`MOST_PANELS`] do.
const AHEAD_OF_TWO: usize = 8 << 10;
const AHEAD_OF_MOST: usize = 512;

/// A step of a panel, the unit of blocks.
trait PanelStep: TileStep {
    /// The step to which a last panel of fewer rows, or a last column without a partner, is
    /// unpacked.
    type Remainder: TileStep;
    /// What multiplies the scales of 8-bit floats.
    const UNIT: f32 = 1.0;
    /// Whether several tiles share weights that were widened once, as steps of `Remainder`: one for
    /// each value.
    const SHARED: bool = false;

    /// Unpacks columns of the given panel, from `from` on, into `out`: 64 bytes a step, with zeros
    /// where there are no values.
    fn unpack(w: WeightsView<'_>, panel: usize, from: usize, out: &mut [f32]) {
        w.unpack(panel, from, out);
    }

    /// What multiplies sums of unpacked values.
    fn unpacked_scale(_: WeightsView<'_>, _row: usize, _column: usize) -> f32 {
        1.0
    }
}

impl PanelStep for F32Step {
    type Remainder = F32Step;
}

impl PanelStep for WidenedBf16Step {
    type Remainder = F32Step;
}

impl PanelStep for PairedBf16Step {
    type Remainder = PairedBf16Step;

    fn unpack(w: WeightsView<'_>, panel: usize, from: usize, out: &mut [f32]) {
        expand_scalar(w, panel, from, out);
    }
}

impl PanelStep for WidenedFloat8Step {
    type Remainder = F32Step;
    const UNIT: f32 = UNIT;
    const SHARED: bool = true;
}

impl PanelStep for PairedFloat8Step {
    type Remainder = PairedBf16Step;
    const SHARED: bool = true;

    /// Numbers are exact in bf16, and their products with scales are not.
    fn unpack(w: WeightsView<'_>, panel: usize, from: usize, out: &mut [f32]) {
        for (step, out) in out.chunks_exact_mut(PANEL).enumerate() {
            for (lane, out) in out.iter_mut().enumerate() {
                let (row, column) = (panel * PANEL + lane, from + 2 * step);
                let bits = |column| match row < w.rows() && column < w.columns() {
                    true => w.float8(row, column).1.to_bits(),
                    false => 0,
                };
                *out = f32::from_bits(bits(column) >> 16 | bits(column + 1));
            }
        }
    }

    fn unpacked_scale(w: WeightsView<'_>, row: usize, column: usize) -> f32 {
        w.float8(row, column).0
    }
}

/// y = x·Wᵀ with x and the sums in f32.
pub(super) fn gemm(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: StridedRows<'_>,
    groups: &[GemmGroup<'_>],
    scratch: &mut [f32],
) {
    let Some((m, w)) = groups.last().map(|last| (last.rows.end, last.w)) else { return };
    let (buffers, rest) = scratch.split_at_mut(pool.members() * BUFFER * PANEL);
    let mut x = x;
    if needs_copy(m, x.stride) {
        copy_x(pool, m, w.columns(), x, rest);
        x = StridedRows::new(rest, padded_stride(w.columns()));
    }
    let product = Avx512Product { y, y_stride, x, w };
    match w.dtype() {
        DType::F32 => product.run::<F32Step>(pool, groups, buffers),
        DType::Bf16 => product.run::<WidenedBf16Step>(pool, groups, buffers),
        _ => product.run::<WidenedFloat8Step>(pool, groups, buffers),
    }
}

/// y = x·Wᵀ with bf16 weights or 8-bit floats, x rounded to bf16 and the sums in f32. Each output
/// adds two products at a time, as VDPBF16PS does.
pub(super) fn gemm_bf16(
    pool: &Pool,
    y: &Disjoint<'_, f32>,
    y_stride: usize,
    x: StridedRows<'_>,
    groups: &[GemmGroup<'_>],
    scratch: &mut [f32],
) {
    let Some((m, w)) = groups.last().map(|last| (last.rows.end, last.w)) else { return };
    let (buffers, rest) = scratch.split_at_mut(pool.members() * BUFFER * PANEL);
    let x = Bf16Rows::new(pool, m, w.columns(), x, rest);
    let x = StridedRows::new(bytemuck::cast_slice(x.values), x.stride / 2);
    let product = Avx512Product { y, y_stride, x, w };
    match w.dtype() {
        DType::Bf16 => product.run::<PairedBf16Step>(pool, groups, buffers),
        _ => product.run::<PairedFloat8Step>(pool, groups, buffers),
    }
}

/// The number of panels that `rows` rows of x multiply at once.
fn panels_at_once(rows: usize) -> usize {
    if rows <= MOST_PANELS_ROWS { MOST_PANELS } else { 2 }
}

/// `panels` in groups of `at_once`, and what is left in groups of two and one.
fn panel_tiles(panels: Range<usize>, at_once: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let most = panels.start + panels.len() / at_once * at_once;
    let rest = (most..panels.end).step_by(2).map(move |panel| panel..panels.end.min(panel + 2));
    (panels.start..most).step_by(at_once).map(move |panel| panel..panel + at_once).chain(rest)
}

/// The operands of one product.
#[derive(Clone, Copy)]
struct Avx512Product<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    /// Rows of f32, or of pairs of bf16.
    x: StridedRows<'a>,
    w: WeightsView<'a>,
}

impl Avx512Product<'_> {
    fn run<S: PanelStep>(&self, pool: &Pool, groups: &[GemmGroup<'_>], buffers: &mut [f32]) {
        let buffers = Disjoint::new(buffers);
        let at_once = groups.iter().map(|group| panels_at_once(group.rows.len())).max().unwrap_or(2);
        each_part(pool, groups, (TILE_ROWS, CHUNK_ROWS), at_once, |member, w, rows, panels| {
            // SAFETY: each member has a buffer of its own.
            let buffer = unsafe { buffers.range(member * BUFFER * PANEL, BUFFER * PANEL) };
            Avx512Product { w, ..*self }.part::<S>(rows, panels, buffer);
        });
    }

    /// Computes the given rows and panels of y, which belong to this item.
    fn part<S: PanelStep>(&self, rows: Range<usize>, panels: Range<usize>, buffer: &mut [f32]) {
        let k = self.w.columns();
        let steps = k / S::COLUMNS;
        let streamed = rows.len() <= TILE_ROWS;
        let block = if streamed { steps.max(1) } else { BLOCK / 2 / S::BYTES };
        let blocks = (0..steps.div_ceil(block)).map(|i| i * block..steps.min((i + 1) * block));
        let whole = panels.start..panels.end.min(self.w.rows() / PANEL);
        let tiles = panel_tiles(whole.clone(), panels_at_once(rows.len()));
        if 4 * rows.len() * k * S::VALUES / S::COLUMNS <= CACHED_X {
            for tile in tiles.clone() {
                for steps in blocks.clone() {
                    // A streamed panel continues in memory; otherwise the same panels' next block
                    // comes next.
                    let ahead = match (streamed, tile.len()) {
                        (true, MOST_PANELS) => AHEAD_OF_MOST,
                        (true, _) => AHEAD_OF_TWO,
                        (false, _) => steps.len() * S::BYTES,
                    };
                    self.block::<S>(&rows, tile.clone(), steps, ahead, buffer);
                }
            }
        } else {
            for steps in blocks {
                for tile in tiles.clone() {
                    let ahead = tile.len() * self.panel_bytes();
                    self.block::<S>(&rows, tile.clone(), steps.clone(), ahead, buffer);
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

    /// Adds the contribution of some steps to whole panels of y, one tile's; from step 0 it
    /// overwrites y. Meanwhile it prefetches what lies `ahead` bytes further on.
    fn block<S: PanelStep>(
        &self,
        rows: &Range<usize>,
        panels: Range<usize>,
        steps: Range<usize>,
        ahead: usize,
        buffer: &mut [f32],
    ) {
        let values = &self.w.panel(panels.start)[self.w.header_bytes()..];
        let shared = S::SHARED && rows.len() > TILE_ROWS;
        let most = if shared { BUFFER / 2 / S::VALUES * S::COLUMNS } else { usize::MAX };
        for columns in evenly_scaled(self.w, steps.start * S::COLUMNS..steps.end * S::COLUMNS, most) {
            let steps = columns.start / S::COLUMNS..columns.end / S::COLUMNS;
            let w = values[steps.start * S::BYTES..].as_ptr();
            let mut tile = Avx512Tile {
                x: std::ptr::null(),
                x_stride: self.x.stride,
                w,
                panel_bytes: self.panel_bytes(),
                steps: steps.len(),
                scales: tile_scales(self.w, panels.start, columns.start, S::UNIT),
                add: steps.start > 0,
                y: std::ptr::null_mut(),
                y_stride: self.y_stride,
                ahead: w.wrapping_add(ahead),
            };
            if shared {
                // SAFETY: the panels have these steps; the buffer has room for them.
                unsafe { tile.widen::<S>(panels.len(), buffer) };
            }
            for rows in even_tiles(rows, TILE_ROWS) {
                tile.x = self.x.values[rows.start * self.x.stride + steps.start * S::VALUES..].as_ptr();
                tile.y = self.y.pointer(rows.start * self.y_stride + panels.start * PANEL);
                // SAFETY: a CPU that runs this path has the instructions. The panels have these
                // steps and x these rows; these values of y belong to this item.
                unsafe {
                    match shared {
                        true => tile.run::<S::Remainder>(rows.len(), panels.len()),
                        false => tile.run::<S>(rows.len(), panels.len()),
                    }
                }
                tile.ahead = std::ptr::null();
            }
        }
    }

    /// As `block`, for columns that must be unpacked: those of a panel of fewer rows, or a last
    /// column without a partner.
    fn unpacked<S: PanelStep>(
        &self,
        rows: &Range<usize>,
        panel: usize,
        columns: Range<usize>,
        buffer: &mut [f32],
    ) {
        let height = PANEL.min(self.w.rows() - panel * PANEL);
        let most = BUFFER * S::Remainder::COLUMNS;
        for from in columns.clone().step_by(most) {
            let steps = (columns.end.min(from + most) - from).div_ceil(S::Remainder::COLUMNS);
            S::unpack(self.w, panel, from, &mut buffer[..steps * PANEL]);
            for rows in even_tiles(rows, TILE_ROWS) {
                // The sums are sixteen wide, because y must keep the values beyond the last row of
                // W.
                let mut sums = [0.0; TILE_ROWS * PANEL];
                let tile = Avx512Tile {
                    x: self.x.values[rows.start * self.x.stride + from * S::VALUES / S::COLUMNS..].as_ptr(),
                    x_stride: self.x.stride,
                    w: buffer.as_ptr().cast(),
                    panel_bytes: 0,
                    steps,
                    scales: TileScales::NONE,
                    add: false,
                    y: sums.as_mut_ptr(),
                    y_stride: PANEL,
                    ahead: std::ptr::null(),
                };
                // SAFETY: the buffer has these steps; the rest as in `block`.
                unsafe { tile.run::<S::Remainder>(rows.len(), 1) };
                for (row, sums) in rows.zip(sums.chunks_exact(PANEL)) {
                    // SAFETY: these values of y belong to this item.
                    let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, height) };
                    for (lane, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
                        let sum = sum * S::unpacked_scale(self.w, panel * PANEL + lane, from);
                        *y = if from > 0 { *y + sum } else { sum };
                    }
                }
            }
        }
    }
}
