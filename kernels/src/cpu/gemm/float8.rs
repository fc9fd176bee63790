//! Scales of 8-bit floats in products by vectors.

use crate::cpu::tiles::scales::TileScales;
use crate::cpu::weights::{PANEL, SCALE_COLUMNS, WeightsView, is_float8};
use hwprofiles::DType;
use std::ops::Range;

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
