//! Blocking and sharing of work around the micro-kernels.
//!
//! Large m: a chunk of x (up to [`CHUNK_ROWS`] rows of a block of columns) stays in the second-level cache while the
//! panels of a range of n pass by, each block of a panel (16 KiB) staying in the first-level cache while the
//! rows pass by. Small m: all of x stays in the second-level cache and each panel is read from memory once, at its
//! speed. Weights are widened on the way into registers, so nothing is unpacked and no byte is written twice.

use super::group::{Group, each_part};
use super::integer::{self, Instructions, Rounded, rounded_floats};
use crate::disjoint::Disjoint;
use crate::tile::{Bf16Panel, Fetch, FloatPanel, Floats, Lanes, TILE_ROWS, tile};
use crate::{PANEL, Pool, WeightsView};
use hwprofiles::DType;
use std::ops::Range;

/// Rows of x that stay in the second-level cache.
pub(super) const CHUNK_ROWS: usize = 192;
/// Floats of x that do: all of it, then each panel is read once.
const CACHED_X: usize = 64 << 10;
/// Columns of the buffer for a last panel of fewer than sixteen rows.
pub(super) const BUFFER: usize = 256;
/// From so many values on, x is copied by the whole team.
const SHARED_COPY: usize = 1 << 16;

/// Floats of scratch for one call, whatever the format of the weights.
pub(super) fn scratch_floats(members: usize, m: usize, k: usize) -> usize {
    let x = (m * padded_stride(k)).max(rounded_floats(m, k)).max(super::rounded::floats(m, k));
    x + members * (BUFFER * PANEL).max(super::amx::MEMBER_FLOATS)
}

/// Distance of x's rows in scratch: 64 bytes more where they would otherwise fall on the same lines of a
/// first-level cache (4 KiB per way).
pub(super) fn padded_stride(k: usize) -> usize {
    if k.is_multiple_of(512) { k + 16 } else { k }
}

/// Columns of a block: 16 KiB of the panel, and less where x would not fit beside it.
fn block(dtype: DType, instructions: Instructions) -> usize {
    match (dtype, instructions) {
        (DType::F32, _) => 256,
        (DType::Bf16, _) | (_, Instructions::Vnni) => 512,
        _ => 1024,
    }
}

/// One product's operands.
#[derive(Clone, Copy)]
struct Product<'a> {
    y: &'a Disjoint<'a, f32>,
    y_stride: usize,
    x: &'a [f32],
    x_stride: usize,
    /// x as the integer kernel reads it, for integer weights.
    rounded: Option<Rounded<'a>>,
    /// What multiplies those.
    instructions: Instructions,
    w: WeightsView<'a>,
}

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
    let k = w.columns();
    let (buffers, rest) = scratch.split_at_mut(pool.members() * BUFFER * PANEL);
    let instructions = Instructions::Avx2;
    let mut product = Product { y, y_stride, x, x_stride, rounded: None, instructions, w };
    if matches!(w.dtype(), DType::Int8 | DType::Int4) {
        product.rounded = Some(Rounded::new(pool, m, k, x, x_stride, rest));
        product.instructions = Instructions::of(pool.path());
    } else if m > 1 && !x_stride.is_multiple_of(16) || x_stride.is_multiple_of(512) {
        copy_x(pool, m, k, x, x_stride, rest);
        (product.x, product.x_stride) = (rest, padded_stride(k));
    }
    let buffers = Disjoint::new(buffers);
    each_part(pool, groups, product.instructions.tile_rows(), 1, |member, w, rows, panels| {
        // SAFETY: each member has a buffer of its own.
        let buffer = unsafe { buffers.range(member * BUFFER * PANEL, BUFFER * PANEL) };
        // SAFETY: the path is AVX2 only on a CPU with AVX2, FMA and F16C; each item has its own part of y.
        unsafe { Product { w, ..product }.part(rows, panels, buffer) };
    });
}

/// Rows and panels of one item of work: `enough` items or more where the matrix has as many parts.
pub(super) fn split(enough: usize, m: usize, w: WeightsView<'_>, tile_rows: usize) -> (usize, usize) {
    let panels = w.rows().div_ceil(PANEL);
    let row_chunks = m.div_ceil(CHUNK_ROWS);
    let mut rows = m.div_ceil(row_chunks).next_multiple_of(tile_rows);
    let mut columns = if m * w.columns() <= CACHED_X {
        // At least a quarter of a megabyte each: long enough for the memory to come up to speed.
        ((256 << 10) * w.rows()).div_ceil(w.bytes().len().max(1)).div_ceil(PANEL).max(1)
    } else {
        16
    };
    while m.div_ceil(rows) * panels.div_ceil(columns) < enough && columns > 2 {
        columns = columns.div_ceil(2);
    }
    while m.div_ceil(rows) * panels.div_ceil(columns) < enough && rows > 4 * tile_rows {
        rows = rows.div_ceil(2).next_multiple_of(tile_rows);
    }
    (rows, columns)
}

/// Copies x to rows [`padded_stride`] apart.
pub(super) fn copy_x(pool: &Pool, m: usize, k: usize, x: &[f32], stride: usize, copy: &mut [f32]) {
    let copy = Disjoint::new(copy);
    let one = |_, row: usize| {
        // SAFETY: each row is one item.
        let to = unsafe { copy.range(row * padded_stride(k), k) };
        to.copy_from_slice(&x[row * stride..][..k]);
    };
    if m * k < SHARED_COPY {
        (0..m).for_each(|row| one(0, row));
    } else {
        pool.each(m, one);
    }
}

impl Product<'_> {
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
            // SAFETY: as promised by the caller.
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

    /// Adds (or, from column 0, writes) what a range of columns contributes to one panel of y.
    ///
    /// # Safety
    /// As [`Product::part`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn block(&self, rows: &Range<usize>, panel: usize, columns: Range<usize>, buffer: &mut [f32]) {
        if self.w.rows() - panel * PANEL < PANEL {
            for from in columns.clone().step_by(BUFFER) {
                let part = from..columns.end.min(from + BUFFER);
                self.w.unpack(panel, from, &mut buffer[..part.len() * PANEL]);
                // SAFETY: as promised by the caller.
                unsafe { self.last_panel(rows, panel, part, buffer) };
            }
            return;
        }
        let bytes = self.w.panel(panel);
        // Where several tiles use a block, the first one fetches the next block, so that memory works while the others
        // compute.
        let fetch = match (self.w.dtype(), rows.len()) {
            (DType::F32, ..=TILE_ROWS) | (DType::Int8, 1) => Fetch::Near,
            _ => Fetch::Far,
        };
        for (tile, rows) in even_tiles(rows, self.instructions.tile_rows()).enumerate() {
            let y = self.y.pointer(rows.start * self.y_stride + panel * PANEL);
            // Only the first tile meets weights that are not in the first-level cache.
            let fetch = if tile == 0 { fetch } else { Fetch::Nothing };
            let columns = columns.clone();
            // SAFETY: a full panel has the columns that are asked for; the rest is the caller's promise.
            unsafe {
                match (self.w.dtype(), self.rounded) {
                    (dtype, Some(x)) => {
                        let (instructions, stride) = (self.instructions, self.y_stride);
                        integer::multiply(instructions, dtype, bytes, columns, x, rows, y, stride, fetch);
                    }
                    (DType::Bf16, None) => {
                        let start = bytes[32 * columns.start..].as_ptr();
                        self.tile(rows, &columns, Bf16Panel { start, fetch }, y, self.y_stride);
                    }
                    (_, None) => {
                        let start = bytes[64 * columns.start..].as_ptr();
                        self.tile(rows, &columns, FloatPanel { start, fetch }, y, self.y_stride);
                    }
                }
            }
        }
    }

    /// One tile: up to six rows of x times `w`, which starts at the first of `columns`.
    ///
    /// # Safety
    /// As [`Product::part`]; `w` has these columns; `y` these rows of sixteen values, which are ours.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn tile<L: Lanes>(
        &self,
        rows: Range<usize>,
        columns: &Range<usize>,
        w: L,
        y: *mut f32,
        y_stride: usize,
    ) {
        let x = &self.x[rows.start * self.x_stride + columns.start..];
        // SAFETY: x has these rows; the rest is the caller's promise.
        unsafe {
            tile(rows.len(), columns.len(), x.as_ptr(), self.x_stride, w, y, y_stride, columns.start > 0)
        };
    }

    /// The part of a last panel of fewer than sixteen rows, unpacked in `buffer`.
    ///
    /// # Safety
    /// As [`Product::part`].
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn last_panel(&self, rows: &Range<usize>, panel: usize, columns: Range<usize>, buffer: &[f32]) {
        let w = Floats { start: buffer.as_ptr(), stride: PANEL };
        let height = self.w.rows() - panel * PANEL;
        for rows in even_tiles(rows, TILE_ROWS) {
            // Sixteen wide, unlike y, which must keep what lies beyond the last row of W.
            let mut sums = [0.0; TILE_ROWS * PANEL];
            for (row, sums) in rows.clone().zip(sums.chunks_exact_mut(PANEL)) {
                // SAFETY: these values of y are ours by the caller's promise.
                let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, height) };
                sums[..height].copy_from_slice(y);
            }
            // SAFETY: `sums` is whole; the buffer has these columns; CPU features as promised.
            unsafe { self.tile(rows.clone(), &columns, w, sums.as_mut_ptr(), PANEL) };
            for (row, sums) in rows.zip(sums.chunks_exact(PANEL)) {
                // SAFETY: as above.
                let y = unsafe { self.y.range(row * self.y_stride + panel * PANEL, height) };
                y.copy_from_slice(&sums[..height]);
            }
        }
    }
}

/// Splits rows into tiles of at most `most` whose heights differ by one at most: 8 as 4 + 4, not 6 + 2, because low
/// tiles cannot keep both FMA units busy.
pub(super) fn even_tiles(rows: &Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let (start, len) = (rows.start, rows.len());
    let count = len.div_ceil(most);
    (0..count).map(move |i| start + len * i / count..start + len * (i + 1) / count)
}
