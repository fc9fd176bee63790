//! Weight matrices in the order in which the kernels read them.
//!
//! A matrix of `rows` (outputs, n) × `columns` (inputs, k) is stored in *panels* of [`PANEL`] rows, one
//! after the other; inside a panel the columns follow each other, each with its 16 values, so that a
//! vector of outputs is one load and no horizontal sum is ever needed. A range of rows that starts and
//! ends on a panel is a contiguous range of bytes, and the whole takes exactly [`DType::matrix_bytes`].
//!
//! | format | a panel is |
//! |---|---|
//! | `f32` | per column 16 values |
//! | `bf16` | per pair of columns 16 words of 32 bits, one per row: the first column in the lower half, the second in the upper; a last column without a partner is 16 values. What AVX512_BF16 and AMX multiply; one shift and one mask make two columns of f32 |
//! | `int8` | per group of 32 columns: 16 f16 scales, then per pair of columns 16 × 2 signed bytes, a row's two side by side |
//! | `int4` | per group: 16 f16 scales, then per 8 columns 16 words of 32 bits, one per row: nibbles i and i + 4 are q + 8 of columns 2i and 2i + 1 |
//!
//! A last panel of fewer rows keeps the order with that many values instead of 16. Columns beyond the last, up to a
//! whole group, are zeros.
//!
//! Quantisation is symmetric: with a the largest magnitude in a group of one row and L = 127 (`int8`) or
//! 7 (`int4`), the scale is s = f16(a / L) and q = clamp(round(w / s), −L, L), ties away from zero; q = 0
//! where s = 0. The dequantised value is s·q in f32.

mod pack;
mod quantise;
mod sparse;

pub(crate) use quantise::quantise;
pub use sparse::SparseWeights;
#[cfg(test)]
pub(crate) use sparse::vectors_expand;

use crate::{Buffer, Error, Memory};
use half::{bf16, f16};
use hwprofiles::{DType, GROUP};

/// Rows of a panel.
pub const PANEL: usize = 16;
/// Columns of a group, as an index.
pub(crate) const GROUP_COLUMNS: usize = GROUP as usize;

/// A weight matrix that owns its bytes.
#[derive(Debug)]
pub struct Weights {
    dtype: DType,
    rows: usize,
    columns: usize,
    buffer: Buffer,
}

/// A weight matrix over bytes that lie anywhere: in [`Weights`], or where a copy of them was streamed to.
#[derive(Debug, Clone, Copy)]
pub struct WeightsView<'a> {
    dtype: DType,
    rows: usize,
    columns: usize,
    bytes: &'a [u8],
}

impl Weights {
    /// Packs a row-major matrix of f32 values, quantising or rounding (to nearest, ties to even) them.
    ///
    /// # Errors
    /// [`Error::DType`], [`Error::Size`] where `values` is not `rows · columns` long, and as
    /// [`Memory::allocate`].
    pub fn from_f32(
        memory: &Memory,
        dtype: DType,
        rows: usize,
        columns: usize,
        values: &[f32],
    ) -> Result<Self, Error> {
        Self::build(memory, dtype, rows, columns, values)
    }

    /// As [`Weights::from_f32`], from bf16 values.
    ///
    /// # Errors
    /// As [`Weights::from_f32`].
    pub fn from_bf16(
        memory: &Memory,
        dtype: DType,
        rows: usize,
        columns: usize,
        values: &[bf16],
    ) -> Result<Self, Error> {
        Self::build(memory, dtype, rows, columns, values)
    }

    fn build<T: Copy + Into<f32>>(
        memory: &Memory,
        dtype: DType,
        rows: usize,
        columns: usize,
        values: &[T],
    ) -> Result<Self, Error> {
        matrix_bytes(dtype, rows, columns)?;
        if values.len() != rows * columns {
            let (wanted, got) = (rows * columns * size_of::<T>(), size_of_val(values));
            return Err(Error::Size { what: "a source matrix", rows, columns, dtype, wanted, got });
        }
        Self::from_rows(memory, dtype, rows, columns, |row, out| {
            let line = &values[row * columns..][..columns];
            out.iter_mut().zip(line).for_each(|(out, &value)| *out = value.into());
        })
    }

    /// Packs the matrix whose row `row` is what `write(row, out)` puts into `out`, which has `columns` values. Rows
    /// are asked for once each, in order: they may come from a file, with no more than a panel of them in memory.
    ///
    /// # Errors
    /// [`Error::DType`], and as [`Memory::allocate`].
    pub fn from_rows(
        memory: &Memory,
        dtype: DType,
        rows: usize,
        columns: usize,
        write: impl FnMut(usize, &mut [f32]),
    ) -> Result<Self, Error> {
        let buffer = memory.filled(matrix_bytes(dtype, rows, columns)?, |buffer| -> Result<(), Error> {
            pack::pack(dtype, rows, columns, write, buffer.bytes_mut());
            Ok(())
        })?;
        Ok(Self { dtype, rows, columns, buffer })
    }

    /// The matrix to compute with.
    pub fn view(&self) -> WeightsView<'_> {
        WeightsView { dtype: self.dtype, rows: self.rows, columns: self.columns, bytes: self.buffer.bytes() }
    }

    /// Its bytes, to be copied to another memory.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Number format, rows, columns.
    pub fn shape(&self) -> (DType, usize, usize) {
        (self.dtype, self.rows, self.columns)
    }

    /// Where its bytes are.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The same, to be made ready for a GPU.
    pub fn buffer_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}

impl<'a> WeightsView<'a> {
    /// A matrix over `bytes`, which [`Weights`] packed.
    ///
    /// # Errors
    /// [`Error::DType`] for a format that is not one of f32, bf16, int8, int4; [`Error::Size`] where the bytes are
    /// not exactly [`DType::matrix_bytes`].
    pub fn new(dtype: DType, rows: usize, columns: usize, bytes: &'a [u8]) -> Result<Self, Error> {
        let wanted = matrix_bytes(dtype, rows, columns)?;
        if bytes.len() != wanted {
            return Err(Error::Size { what: "a matrix", rows, columns, dtype, wanted, got: bytes.len() });
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

    /// One value, dequantised: the definition that every kernel is held to.
    pub fn value(&self, row: usize, column: usize) -> f32 {
        assert!(row < self.rows && column < self.columns, "({row}, {column})");
        let (panel, lane) = (row / PANEL, row % PANEL);
        let height = PANEL.min(self.rows - panel * PANEL);
        let bytes = &self.bytes[panel * PANEL * row_bytes(self.dtype, self.columns)..];
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (group, offset) = (column / GROUP_COLUMNS, column % GROUP_COLUMNS);
        match self.dtype {
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

    /// One whole row, dequantised into `out`, which is `columns` long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.columns);
        if self.dtype != DType::Bf16 {
            return out.iter_mut().enumerate().for_each(|(column, out)| *out = self.value(row, column));
        }
        // The usual table of embeddings: a row is a pair of values in every cache line of its panel, so it costs what the lines cost.
        let height = PANEL.min(self.rows - row / PANEL * PANEL);
        let values = &self.bytes[row / PANEL * PANEL * row_bytes(self.dtype, self.columns)..];
        for (column, out) in out.iter_mut().enumerate() {
            let at = 2 * bf16_slot(row % PANEL, column, height, self.columns);
            *out = bf16::from_bits(u16::from_le_bytes([values[at], values[at + 1]])).to_f32();
        }
    }

    /// Unpacks columns `from..from + out.len() / 16` of panel `panel` into `[column][16]`, lanes beyond the last
    /// row as zeros. The plain way: kernels use it for a last panel of fewer rows.
    pub(crate) fn unpack(&self, panel: usize, from: usize, out: &mut [f32]) {
        for (offset, out) in out.chunks_exact_mut(PANEL).enumerate() {
            for (lane, out) in out.iter_mut().enumerate() {
                let row = panel * PANEL + lane;
                *out = if row < self.rows { self.value(row, from + offset) } else { 0.0 };
            }
        }
    }

    /// The bytes of full panel `panel`.
    pub(crate) fn panel(&self, panel: usize) -> &'a [u8] {
        let bytes = PANEL * row_bytes(self.dtype, self.columns);
        &self.bytes[panel * bytes..][..bytes]
    }
}

/// Where column `column` of `columns` and lane `lane` lie among the values of a bf16 panel of `height` rows.
pub(crate) fn bf16_slot(lane: usize, column: usize, height: usize, columns: usize) -> usize {
    let alone = columns % 2 == 1 && column == columns - 1;
    column / 2 * 2 * height + if alone { lane } else { 2 * lane + column % 2 }
}

/// Where column `offset` of a group and lane `lane` lie among an int8 group's values: pairs of columns are what a
/// 16-bit multiply-add takes.
pub(crate) fn int8_slot(lane: usize, offset: usize, height: usize) -> usize {
    (offset / 2 * height + lane) * 2 + offset % 2
}

/// Which nibble of its word holds column `offset` of eight: a mask leaves nibbles 0 and 4, a pair of 16-bit values.
pub(crate) fn int4_nibble(offset: usize) -> usize {
    offset / 2 + 4 * (offset % 2)
}

fn row_bytes(dtype: DType, columns: usize) -> usize {
    dtype.matrix_bytes(1, columns as u64).get() as usize
}

fn matrix_bytes(dtype: DType, rows: usize, columns: usize) -> Result<usize, Error> {
    match dtype {
        DType::F32 | DType::Bf16 | DType::Int8 | DType::Int4 => Ok(rows * row_bytes(dtype, columns)),
        DType::F16 | DType::Fp8 | DType::Int2 => {
            Err(Error::DType { what: "weights", dtype, accepted: "f32, bf16, int8, int4" })
        }
    }
}
