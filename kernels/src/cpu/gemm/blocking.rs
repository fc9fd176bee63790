//! How a product is cut into blocks that fit the caches, and into items of work.

use crate::cpu::strided::StridedRows;
use crate::cpu::tiles::scales::TileScales;
use crate::cpu::weights::{PANEL, SCALE_COLUMNS, WeightsView, is_float8};
use crate::runtime::{Disjoint, Pool};
use hwprofiles::DType;
use std::ops::Range;

/// Rows of x that stay in the second-level cache.
pub(super) const CHUNK_ROWS: usize = 192;
/// The number of floats up to which all of x stays in the second-level cache. Then each panel is
/// read once.
pub(super) const CACHED_X: usize = 64 << 10;
/// Columns of the buffer for a last panel of fewer than sixteen rows.
pub(super) const BUFFER: usize = 256;
/// The number of values from which on the whole team copies x.
const SHARED_COPY: usize = 1 << 16;

/// The distance of x's rows in scratch. Rows that would fall on the same lines of a first-level
/// cache (4 KiB per way) lie 64 bytes further apart.
pub(super) fn padded_stride(k: usize) -> usize {
    if k.is_multiple_of(512) { k + 16 } else { k }
}

/// Whether the kernels of vectors read m rows of x faster from a copy than where they are.
pub(super) fn needs_copy(m: usize, stride: usize) -> bool {
    m > 1 && !stride.is_multiple_of(16) || stride.is_multiple_of(512)
}

/// Rows, at most `chunk_rows` of them, and panels of one item of work. The product gets `enough`
/// items, or as many as it has parts.
pub(super) fn split(
    enough: usize,
    m: usize,
    w: WeightsView<'_>,
    (tile_rows, chunk_rows): (usize, usize),
) -> (usize, usize) {
    let panels = w.rows().div_ceil(PANEL);
    let row_chunks = m.div_ceil(chunk_rows);
    let mut rows = m.div_ceil(row_chunks).next_multiple_of(tile_rows);
    let mut columns = if m * w.columns() <= CACHED_X {
        // At least 256 KiB each: long enough for the memory to reach its full rate.
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

/// Copies m rows of k columns of x to rows that lie [`padded_stride`] apart.
pub(super) fn copy_x(pool: &Pool, m: usize, k: usize, x: StridedRows<'_>, copy: &mut [f32]) {
    let copy = Disjoint::new(copy);
    let one = |_, row: usize| {
        // SAFETY: each row is one item.
        let to = unsafe { copy.range(row * padded_stride(k), k) };
        to.copy_from_slice(&x.values[row * x.stride..][..k]);
    };
    if m * k < SHARED_COPY {
        (0..m).for_each(|row| one(0, row));
    } else {
        pool.each(m, one);
    }
}

/// Splits rows into tiles of at most `most` rows whose heights differ by at most one: 8 rows are 4
/// + 4 and not 6 + 2, because low tiles cannot keep both FMA units busy.
pub(super) fn even_tiles(rows: &Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let (start, len) = (rows.start, rows.len());
    let count = len.div_ceil(most);
    (0..count).map(move |i| start + len * i / count..start + len * (i + 1) / count)
}

/// The parts of `columns`, which start on a block of scales, in which no output's scale changes, of
/// at most `most` columns: a power of two from [`SCALE_COLUMNS`] on.
pub(super) fn evenly_scaled(
    w: WeightsView<'_>,
    columns: Range<usize>,
    most: usize,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let step = if w.dtype() == DType::Fp8Block { SCALE_COLUMNS } else { columns.len().clamp(1, most) };
    columns.clone().step_by(step).map(move |from| from..columns.end.min(from + step))
}

/// What multiplies sums over columns from `column` on, in the panels from `panel` on; of other
/// formats nothing.
pub(super) fn tile_scales(w: WeightsView<'_>, panel: usize, column: usize, unit: f32) -> TileScales {
    if !is_float8(w.dtype()) {
        return TileScales::NONE;
    }
    let (bytes, each) = (w.panel(panel), w.dtype() == DType::Fp8);
    let scales = if each { &bytes[..4 * PANEL] } else { &bytes[4 * (column / SCALE_COLUMNS)..][..4] };
    TileScales::new(scales.as_ptr(), bytes.len(), each, unit)
}
