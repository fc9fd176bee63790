//! Where each value of a packed matrix lies.

use super::panel::PANEL;
use crate::cpu::blocks::BlockLayout;
use crate::runtime::KernelError;
use hwprofiles::{DType, GROUP};

/// Columns of a group, as an index.
pub(crate) const GROUP_COLUMNS: usize = GROUP as usize;

/// The index of column `column` of `columns` and lane `lane` among the values of a bf16 panel of
/// `height` rows.
pub(super) fn bf16_slot(lane: usize, column: usize, height: usize, columns: usize) -> usize {
    let alone = columns % 2 == 1 && column == columns - 1;
    column / 2 * 2 * height + if alone { lane } else { 2 * lane + column % 2 }
}

/// The index of column `offset` of a group and lane `lane` among an int8 group's values. Columns
/// lie in pairs, because a 16-bit multiply-add takes a pair.
pub(super) fn int8_slot(lane: usize, offset: usize, height: usize) -> usize {
    (offset / 2 * height + lane) * 2 + offset % 2
}

/// The nibble of a word that holds column `offset` of eight. A mask leaves nibbles 0 and 4, which
/// are a pair of 16-bit values.
pub(super) fn int4_nibble(offset: usize) -> usize {
    offset / 2 + 4 * (offset % 2)
}

/// Bytes of one row of `columns` columns.
pub(super) fn row_bytes(dtype: DType, columns: usize) -> usize {
    dtype.matrix_bytes(1, columns as u64).get() as usize
}

/// The formats of matrices.
pub(super) const ACCEPTED: &str =
    "f32, bf16, fp8, fp8_block, int8, int4, q8_0, q6_k, q5_k, q4_k, q4_0, iq4_xs, iq4_nl, mxfp4, nvfp4";

/// Those of them that a file has in blocks.
pub(super) const BLOCKS: &str = "q8_0, q6_k, q5_k, q4_k, q4_0, iq4_xs, iq4_nl, mxfp4, nvfp4";

/// Bytes of a matrix.
///
/// # Errors
/// [`KernelError::DType`] for a format that no kernel reads; [`KernelError::Blocks`] where rows are
/// not whole blocks, [`KernelError::Panels`] where panels are not whole;
/// [`KernelError::TooLarge`] where a `usize` cannot hold the number.
pub(super) fn matrix_bytes(dtype: DType, rows: usize, columns: usize) -> Result<usize, KernelError> {
    match (dtype, BlockLayout::for_dtype(dtype)) {
        (DType::Fp8Block, _) if !rows.is_multiple_of(PANEL) => {
            return Err(KernelError::Panels { dtype, rows });
        }
        (DType::F32 | DType::Bf16 | DType::Int8 | DType::Int4 | DType::Fp8 | DType::Fp8Block, _) => {}
        (_, Some(BlockLayout { columns: block, .. })) if columns.is_multiple_of(block) => {}
        (_, Some(BlockLayout { columns: block, .. })) => {
            return Err(KernelError::Blocks { dtype, columns, block });
        }
        _ => return Err(KernelError::DType { what: "weights", dtype, accepted: ACCEPTED }),
    }
    // No format takes more than 8 bytes a column, padding to a whole group included.
    let fits = columns.checked_next_multiple_of(GROUP_COLUMNS).and_then(|all| all.checked_mul(8));
    let bytes = fits.and_then(|_| rows.checked_mul(row_bytes(dtype, columns)));
    bytes.ok_or(KernelError::TooLarge { what: "a matrix", rows, columns, dtype })
}
