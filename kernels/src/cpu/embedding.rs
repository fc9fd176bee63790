//! Embedding: rows of a matrix by index.

use crate::cpu::vector::each_row_in_place_indexed;
use crate::cpu::weights::WeightsView;
use crate::runtime::Pool;

/// Writes row `rows[i]` of `table`, dequantised, as row i of `out`.
///
/// # Panics
/// Where `out` is not `rows.len()` × `table.columns()` or an index is beyond the table.
pub fn gather(pool: &Pool, out: &mut [f32], table: WeightsView<'_>, rows: &[u32]) {
    assert_eq!(out.len(), rows.len() * table.columns());
    each_row_in_place_indexed(pool, out, table.columns(), |i, out| table.row(rows[i] as usize, out));
}
