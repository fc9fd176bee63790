//! Weight matrices in the order in which the kernels read them.
//!
//! A matrix of `rows` (outputs, n) × `columns` (inputs, k) is stored in *panels* of [`PANEL`] rows,
//! one after the other. Inside a panel the columns follow each other, each with its 16 values. So a
//! vector of outputs is one load, and no horizontal sum is needed. A range of rows that starts and
//! ends on a panel is a contiguous range of bytes, and the matrix takes exactly
//! [`DType::matrix_bytes`].
//!
//! A panel is, by format:
//! - `f32`: for each column 16 values.
//! - `bf16`: for each pair of columns 16 words of 32 bits, one per row, with the first column in
//!   the lower half and the second in the upper. A last column without a partner is 16 values.
//!   AVX512_BF16 and AMX multiply this form; one shift and one mask turn a pair into two columns of
//!   f32.
//! - `fp8` and `fp8_block`: scales, then a byte for each value in the order of `bf16` (see
//!   `float8`).
//! - `int8`: for each group of 32 columns 16 f16 scales, then for each pair of columns 16 × 2
//!   signed bytes, a row's two bytes side by side.
//! - `int4`: for each group 16 f16 scales, then for each 8 columns 16 words of 32 bits, one per
//!   row. Nibbles i and i + 4 are q + 8 of columns 2i and 2i + 1.
//!
//! - formats of blocks (`q4_k` and others): the blocks of the sixteen rows, interleaved as `blocks`
//!   says; in `nvfp4` behind an f32 scale for each row.
//!
//! A last panel of fewer rows keeps the order with that many values instead of 16. Columns beyond
//! the last, up to a whole group, are zeros.
//!
//! Quantisation is symmetric. With a the largest magnitude in a group of one row and L = 127
//! (`int8`) or 7 (`int4`), the scale is s = f16(a / L) and q = clamp(round(w / s), −L, L), ties
//! away from zero; q = 0 where s = 0. The dequantised value is s·q in f32.

mod float8;
mod layout;
mod pack;
pub(in crate::cpu) mod panel;
mod quantise;
mod sparse;

pub(crate) use float8::{SCALE_COLUMNS, is_float8};
pub use float8::{float8_value, quantise_float8};
pub(crate) use layout::GROUP_COLUMNS;
pub use panel::PANEL;
pub(crate) use quantise::quantise;
pub use sparse::SparseWeights;
#[cfg(test)]
pub(crate) use sparse::has_vector_expand;

use crate::cpu::blocks::{BlockLayout, WidePanel, dequantise};
use crate::runtime::{Buffer, KernelError, MemoryArena};
use float8::{Float8Panel, header_bytes, row_scales};
use half::{bf16, f16};
use hwprofiles::DType;
use layout::{bf16_slot, int4_nibble, int8_slot, matrix_bytes, row_bytes};

/// A weight matrix that owns its bytes.
#[derive(Debug)]
pub struct Weights {
    dtype: DType,
    rows: usize,
    columns: usize,
    buffer: Buffer,
}

/// A weight matrix over bytes that lie anywhere: in [`Weights`], or in a staging buffer.
#[derive(Debug, Clone, Copy)]
pub struct WeightsView<'a> {
    dtype: DType,
    rows: usize,
    columns: usize,
    bytes: &'a [u8],
}

impl Weights {
    /// Packs a row-major matrix of f32 values. Values are quantised, or rounded to nearest, ties to
    /// even.
    ///
    /// # Errors
    /// [`KernelError::DType`]; [`KernelError::Panels`]; [`KernelError::Size`] where `values` is not
    /// `rows · columns` long; those of [`MemoryArena::allocate`].
    pub fn from_f32(
        memory: &MemoryArena,
        dtype: DType,
        rows: usize,
        columns: usize,
        values: &[f32],
    ) -> Result<Self, KernelError> {
        Self::build(memory, dtype, rows, columns, values)
    }

    /// As [`Weights::from_f32`], from bf16 values.
    ///
    /// # Errors
    /// As [`Weights::from_f32`].
    pub fn from_bf16(
        memory: &MemoryArena,
        dtype: DType,
        rows: usize,
        columns: usize,
        values: &[bf16],
    ) -> Result<Self, KernelError> {
        Self::build(memory, dtype, rows, columns, values)
    }

    fn build<T: Copy + Into<f32>>(
        memory: &MemoryArena,
        dtype: DType,
        rows: usize,
        columns: usize,
        values: &[T],
    ) -> Result<Self, KernelError> {
        matrix_bytes(dtype, rows, columns)?;
        if rows.checked_mul(columns) != Some(values.len()) {
            let elements = rows.checked_mul(columns).and_then(|all| all.checked_mul(size_of::<T>()));
            let Some(wanted) = elements else {
                return Err(KernelError::TooLarge { what: "a source matrix", rows, columns, dtype });
            };
            let got = size_of_val(values);
            return Err(KernelError::Size { what: "a source matrix", rows, columns, dtype, wanted, got });
        }
        Self::from_rows(memory, dtype, rows, columns, |row, out| {
            let line = &values[row * columns..][..columns];
            out.iter_mut().zip(line).for_each(|(out, &value)| *out = value.into());
        })
    }

    /// Packs the matrix whose rows `write(row, out)` writes into `out`, which has `columns` values.
    /// Rows are asked for once each, in order. So they may come from a file, with at most a panel
    /// of them in memory.
    ///
    /// # Errors
    /// [`KernelError::DType`]; [`KernelError::TooLarge`]; those of
    /// [`MemoryArena::allocate`].
    pub fn from_rows(
        memory: &MemoryArena,
        dtype: DType,
        rows: usize,
        columns: usize,
        write: impl FnMut(usize, &mut [f32]),
    ) -> Result<Self, KernelError> {
        let len = matrix_bytes(dtype, rows, columns)?;
        if BlockLayout::for_dtype(dtype).is_some() {
            return Err(KernelError::Quantise { dtype });
        }
        let buffer = memory.filled(len, |buffer| -> Result<(), KernelError> {
            pack::pack(dtype, rows, columns, write, buffer.bytes_mut());
            Ok(())
        })?;
        Ok(Self { dtype, rows, columns, buffer })
    }

    /// Whether a file's blocks of `dtype` are multiplied as they are, in rows that are whole
    /// blocks.
    pub fn has_blocks(dtype: DType) -> bool {
        BlockLayout::for_dtype(dtype).is_some()
    }

    /// Whether a file's blocks of `dtype`, in rows of `columns`, are kept as they are
    /// ([`Weights::from_blocks`]).
    pub fn keeps_blocks(dtype: DType, columns: usize) -> bool {
        BlockLayout::for_dtype(dtype).is_some_and(|layout| columns.is_multiple_of(layout.columns))
    }

    /// Keeps the blocks of a file. `read(row, out)` writes the bytes of a row's blocks into `out`.
    /// Rows are asked for once each, in order. Where rows have scales of their own (`nvfp4`), they
    /// are 1.
    ///
    /// # Errors
    /// As [`Weights::from_scaled_blocks`].
    pub fn from_blocks(
        memory: &MemoryArena,
        dtype: DType,
        rows: usize,
        columns: usize,
        mut read: impl FnMut(usize, &mut [u8]),
    ) -> Result<Self, KernelError> {
        Self::from_scaled_blocks(memory, dtype, rows, columns, |row, out| {
            read(row, out);
            1.0
        })
    }

    /// As [`Weights::from_blocks`]; `read` returns the row's own scale, which only `nvfp4` keeps.
    ///
    /// # Errors
    /// [`KernelError::DType`] for a format without blocks, [`KernelError::Blocks`] where rows are
    /// not whole ones; [`KernelError::TooLarge`]; those of [`MemoryArena::allocate`].
    pub fn from_scaled_blocks(
        memory: &MemoryArena,
        dtype: DType,
        rows: usize,
        columns: usize,
        mut read: impl FnMut(usize, &mut [u8]) -> f32,
    ) -> Result<Self, KernelError> {
        let len = matrix_bytes(dtype, rows, columns)?;
        let Some(layout) = BlockLayout::for_dtype(dtype) else {
            return Err(KernelError::DType { what: "blocks", dtype, accepted: layout::BLOCKS });
        };
        let buffer = memory.filled(len, |buffer| -> Result<(), KernelError> {
            let mut line = vec![0; columns / layout.columns * layout.bytes];
            let panel_bytes = (PANEL * row_bytes(dtype, columns)).max(1);
            for (panel, out) in buffer.bytes_mut().chunks_mut(panel_bytes).enumerate() {
                let height = PANEL.min(rows - panel * PANEL);
                for lane in 0..height {
                    layout.set_row_scale(read(panel * PANEL + lane, &mut line), lane, out);
                    BlockLayout::clear_unused(dtype, &mut line);
                    layout.interleave(&line, lane, height, out);
                }
            }
            Ok(())
        })?;
        Ok(Self { dtype, rows, columns, buffer })
    }

    /// Keeps the E4M3 numbers of a file. `read(row, numbers, scales)` writes a row's numbers, none
    /// of which is NaN, and its scales: in `fp8` one; in `fp8_block` one for each 128 columns, the
    /// same in all rows of a panel. Rows are asked for once each, in order.
    ///
    /// # Errors
    /// [`KernelError::DType`] for another format; [`KernelError::Panels`] where the rows of
    /// `fp8_block` are not whole panels; [`KernelError::TooLarge`]; those of
    /// [`MemoryArena::allocate`].
    ///
    /// # Panics
    /// Where scales differ within a panel of `fp8_block`.
    pub fn from_float8(
        memory: &MemoryArena,
        dtype: DType,
        rows: usize,
        columns: usize,
        mut read: impl FnMut(usize, &mut [u8], &mut [f32]),
    ) -> Result<Self, KernelError> {
        if !is_float8(dtype) {
            return Err(KernelError::DType { what: "8-bit floats", dtype, accepted: "fp8, fp8_block" });
        }
        let len = matrix_bytes(dtype, rows, columns)?;
        let buffer = memory.filled(len, |buffer| -> Result<(), KernelError> {
            let (mut numbers, mut scales) = (vec![0; columns], vec![0.0; row_scales(dtype, columns)]);
            let panel_bytes = (PANEL * row_bytes(dtype, columns)).max(1);
            for (panel, out) in buffer.bytes_mut().chunks_mut(panel_bytes).enumerate() {
                let height = PANEL.min(rows - panel * PANEL);
                for lane in 0..height {
                    read(panel * PANEL + lane, &mut numbers, &mut scales);
                    Float8Panel { dtype, columns, height }.write_row(lane, &numbers, &scales, out);
                }
            }
            Ok(())
        })?;
        Ok(Self { dtype, rows, columns, buffer })
    }

    /// Whether [`Weights::from_float8`] keeps numbers in `dtype`.
    pub fn keeps_float8(dtype: DType) -> bool {
        is_float8(dtype)
    }

    /// The matrix to compute with.
    pub fn view(&self) -> WeightsView<'_> {
        WeightsView { dtype: self.dtype, rows: self.rows, columns: self.columns, bytes: self.buffer.bytes() }
    }

    /// The packed bytes, to be copied to another memory.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Number format, rows, columns.
    pub fn shape(&self) -> (DType, usize, usize) {
        (self.dtype, self.rows, self.columns)
    }

    /// The buffer that holds the bytes.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The buffer that holds the bytes, to be locked for a GPU.
    pub fn buffer_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}

impl<'a> WeightsView<'a> {
    /// A matrix over `bytes`, which [`Weights`] packed.
    ///
    /// # Errors
    /// [`KernelError::DType`] for a format that no kernel reads; [`KernelError::Blocks`];
    /// [`KernelError::Size`] where there are not exactly [`DType::matrix_bytes`] bytes.
    pub fn new(dtype: DType, rows: usize, columns: usize, bytes: &'a [u8]) -> Result<Self, KernelError> {
        let wanted = matrix_bytes(dtype, rows, columns)?;
        if bytes.len() != wanted {
            return Err(KernelError::Size {
                what: "a matrix",
                rows,
                columns,
                dtype,
                wanted,
                got: bytes.len(),
            });
        }
        Ok(Self { dtype, rows, columns, bytes })
    }

    /// Number format.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Rows: outputs, n.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: inputs, k.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The packed bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The rows `from..to` as a matrix of their own.
    ///
    /// # Panics
    /// Where `from` is not a multiple of [`PANEL`], or `to` is neither that nor the last row.
    pub fn row_range(&self, from: usize, to: usize) -> WeightsView<'a> {
        assert!(from <= to && to <= self.rows, "rows {from}..{to} of {}", self.rows);
        assert!(
            from.is_multiple_of(PANEL) && (to.is_multiple_of(PANEL) || to == self.rows),
            "rows {from}..{to}"
        );
        let row = row_bytes(self.dtype, self.columns);
        Self { rows: to - from, bytes: &self.bytes[from * row..to * row], ..*self }
    }

    /// One value, dequantised: the definition of what every kernel reads.
    pub fn value(&self, row: usize, column: usize) -> f32 {
        assert!(row < self.rows && column < self.columns, "({row}, {column})");
        if let Some(layout) = BlockLayout::for_dtype(self.dtype) {
            let mut values = vec![0.0; layout.columns];
            self.blocks(layout, row, column / layout.columns, &mut values);
            return values[column % layout.columns];
        }
        let (panel, lane) = (row / PANEL, row % PANEL);
        let height = PANEL.min(self.rows - panel * PANEL);
        let bytes = &self.bytes[panel * PANEL * row_bytes(self.dtype, self.columns)..];
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (group, offset) = (column / GROUP_COLUMNS, column % GROUP_COLUMNS);
        match self.dtype {
            DType::Fp8 | DType::Fp8Block => {
                let (scale, number) = self.float8(row, column);
                scale * number
            }
            DType::F32 => {
                let at = 4 * (column * height + lane);
                f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            }
            DType::Bf16 => bf16::from_bits(word(2 * bf16_slot(lane, column, height, self.columns))).to_f32(),
            DType::Int8 => {
                let start = group * height * (2 + GROUP_COLUMNS);
                let scale = f16::from_bits(word(start + 2 * lane)).to_f32();
                scale * f32::from(bytes[start + 2 * height + int8_slot(lane, offset, height)] as i8)
            }
            _ => {
                let start = group * height * (2 + GROUP_COLUMNS / 2);
                let scale = f16::from_bits(word(start + 2 * lane)).to_f32();
                let nibble = int4_nibble(offset % 8);
                let at = start + 2 * height + (offset / 8 * height + lane) * 4 + nibble / 2;
                let nibble = bytes[at] >> (4 * (nibble % 2)) & 15;
                scale * (f32::from(nibble) - 8.0)
            }
        }
    }

    /// The scale and the number of a value in 8-bit floats.
    pub(crate) fn float8(&self, row: usize, column: usize) -> (f32, f32) {
        let (panel, lane) = (row / PANEL, row % PANEL);
        let (dtype, columns, height) = (self.dtype, self.columns, PANEL.min(self.rows - panel * PANEL));
        let bytes = &self.bytes[panel * PANEL * row_bytes(dtype, columns)..];
        Float8Panel { dtype, columns, height }.scaled(bytes, lane, column)
    }

    /// One whole row, dequantised into `out`, which is `columns` long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.columns);
        if let Some(layout) = BlockLayout::for_dtype(self.dtype) {
            return self.blocks(layout, row, 0, out);
        }
        if self.dtype != DType::Bf16 {
            return out.iter_mut().enumerate().for_each(|(column, out)| *out = self.value(row, column));
        }
        // Embedding tables are usually bf16. A row has two values in every cache line of its panel,
        // so its cost is that of reading the lines.
        let height = PANEL.min(self.rows - row / PANEL * PANEL);
        let values = &self.bytes[row / PANEL * PANEL * row_bytes(self.dtype, self.columns)..];
        for (column, out) in out.iter_mut().enumerate() {
            let at = 2 * bf16_slot(row % PANEL, column, height, self.columns);
            *out = bf16::from_bits(u16::from_le_bytes([values[at], values[at + 1]])).to_f32();
        }
    }

    /// Dequantises blocks of a row, from block `first` on, as many as `out` has.
    fn blocks(&self, layout: BlockLayout, row: usize, first: usize, out: &mut [f32]) {
        let panel = &self.bytes[row / PANEL * PANEL * row_bytes(self.dtype, self.columns)..];
        let height = PANEL.min(self.rows - row / PANEL * PANEL);
        let mut block = [0; 256];
        for (index, out) in out.chunks_exact_mut(layout.columns).enumerate() {
            layout.block(panel, first + index, row % PANEL, height, &mut block[..layout.bytes]);
            dequantise(self.dtype, &block[..layout.bytes], out);
            if layout.row_scale > 0 {
                let own = layout.row_scale(panel, row % PANEL);
                out.iter_mut().for_each(|value| *value *= own);
            }
        }
    }

    /// Unpacks columns `from..from + out.len() / 16` of panel `panel` into `[column][16]`, with
    /// zeros for lanes beyond the last row. Kernels use this scalar code for a last panel of fewer
    /// rows.
    pub(crate) fn unpack(&self, panel: usize, from: usize, out: &mut [f32]) {
        for (offset, out) in out.chunks_exact_mut(PANEL).enumerate() {
            for (lane, out) in out.iter_mut().enumerate() {
                let row = panel * PANEL + lane;
                *out = if row < self.rows { self.value(row, from + offset) } else { 0.0 };
            }
        }
    }

    /// The bytes of panel `panel`, with zeros for rows that a last one lacks; `None` for formats
    /// without blocks.
    pub(crate) fn wide_panel(&self, panel: usize) -> Option<WidePanel<'a>> {
        let layout = BlockLayout::for_dtype(self.dtype)?;
        let (row, height) = (row_bytes(self.dtype, self.columns), PANEL.min(self.rows - panel * PANEL));
        Some(WidePanel::new(layout, &self.bytes[panel * PANEL * row..][..height * row], height))
    }

    /// Bytes of scales in front of the numbers of a full panel of 8-bit floats; of other formats 0.
    pub(crate) fn header_bytes(&self) -> usize {
        header_bytes(self.dtype, self.columns, PANEL)
    }

    /// The bytes of full panel `panel`.
    pub(crate) fn panel(&self, panel: usize) -> &'a [u8] {
        let bytes = PANEL * row_bytes(self.dtype, self.columns);
        &self.bytes[panel * bytes..][..bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_overflows_is_refused() {
        // 2⁶² rows of four bytes wrap around to none.
        for (rows, columns) in [(1 << 62, 1), (1 << 32, 1 << 32), (16, usize::MAX), (16, 1 << 62)] {
            for dtype in [DType::F32, DType::Bf16, DType::Int8, DType::Int4] {
                let error = WeightsView::new(dtype, rows, columns, &[]).expect_err("too large");
                let refused = matches!(error, KernelError::TooLarge { .. } | KernelError::Size { .. });
                assert!(refused, "{error}");
            }
        }
    }
}
