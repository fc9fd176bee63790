//! A matrix of weights as a GPU's products read it.

use crate::cuda::calls::GpuSlice;
use hwprofiles::DType;

/// A matrix of weights that a GPU reads.
#[derive(Debug, Clone, Copy)]
pub struct GpuMatrix {
    /// Its format, rows and columns.
    pub shape: (DType, usize, usize),
    /// Its bytes.
    pub bytes: GpuSlice<u8>,
    /// How they lie.
    pub order: MatrixOrder,
}

/// How the values of a matrix lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixOrder {
    /// As [`crate::Weights`] packs them, for the CPU's kernels and for ours.
    Panels,
    /// Row by row in bf16, as cuBLASLt multiplies them.
    Rows,
}

impl GpuMatrix {
    /// A matrix as [`crate::Weights`] packs it.
    pub fn packed(shape: (DType, usize, usize), bytes: GpuSlice<u8>) -> Self {
        Self { shape, bytes, order: MatrixOrder::Panels }
    }
}
