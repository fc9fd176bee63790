//! Calls of kernels that read packed weights.

use super::call::{KernelCall, count, extent};
use super::slice::GpuSlice;
use crate::cpu::{PANEL, Weights};
use crate::cuda::program::GpuProgram;
use crate::runtime::KernelError;
use bytemuck::{Pod, Zeroable};
use hwprofiles::DType;

const THREADS: u32 = 256;
/// Threads of a product of few rows.
pub(super) const GEMV_THREADS: u32 = 128;
/// Rows of x for which the weights are read once, where there are no more, and otherwise.
const FEW: usize = 8;
const SEVERAL: usize = 32;

/// The formats of matrices that a GPU's kernels read.
pub const GPU_MATRICES: [DType; 14] = [
    DType::Bf16,
    DType::Int8,
    DType::Int4,
    DType::Fp8,
    DType::Fp8Block,
    DType::Q8_0,
    DType::Q6K,
    DType::Q5K,
    DType::Q4K,
    DType::Q4_0,
    DType::Iq4Xs,
    DType::Iq4Nl,
    DType::Mxfp4,
    DType::Nvfp4,
];

/// The names of a kernel for each of [`GPU_MATRICES`].
macro_rules! by_format {
    ($kernel:literal) => {
        [
            concat!($kernel, "_bf16"),
            concat!($kernel, "_int8"),
            concat!($kernel, "_int4"),
            concat!($kernel, "_fp8"),
            concat!($kernel, "_fp8_block"),
            concat!($kernel, "_q8_0"),
            concat!($kernel, "_q6_k"),
            concat!($kernel, "_q5_k"),
            concat!($kernel, "_q4_k"),
            concat!($kernel, "_q4_0"),
            concat!($kernel, "_iq4_xs"),
            concat!($kernel, "_iq4_nl"),
            concat!($kernel, "_mxfp4"),
            concat!($kernel, "_nvfp4"),
        ]
    };
}
pub(super) use by_format;

/// The kernel for a format, and the address of a matrix whose size was checked.
pub(super) fn packed(
    kernels: [&'static str; GPU_MATRICES.len()],
    dtype: DType,
    rows: usize,
    columns: usize,
    bytes: GpuSlice<u8>,
) -> Result<(&'static str, u64), KernelError> {
    let place = GPU_MATRICES.iter().position(|format| *format == dtype);
    let Some(place) = place.filter(|_| !Weights::has_blocks(dtype) || Weights::keeps_blocks(dtype, columns))
    else {
        let accepted = "bf16, int8, int4, fp8, fp8_block; q8_0, q6_k, q5_k, q4_k, q4_0, iq4_xs, iq4_nl, mxfp4, nvfp4 in whole blocks";
        return Err(KernelError::DType { what: "weights of a GPU", dtype, accepted });
    };
    let wanted = dtype.matrix_bytes(rows as u64, columns as u64).get() as usize;
    if bytes.len() != wanted {
        let got = bytes.len();
        return Err(KernelError::Size { what: "a matrix", rows, columns, dtype, wanted, got });
    }
    Ok((kernels[place], bytes.aligned(16, "weights")))
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GemvArguments {
    x: u64,
    w: u64,
    y: u64,
    rows: i32,
    columns: i32,
    x_stride: i32,
    y_stride: i32,
    wide: i32,
    m: i32,
}

/// The output of a product.
#[derive(Debug, Clone, Copy)]
pub enum ProductOutput {
    /// Rounded to bf16, as the next kernel reads it.
    Narrow(GpuSlice<u16>),
    /// In f32, for logits.
    Wide(GpuSlice<f32>),
}

impl From<GpuSlice<u16>> for ProductOutput {
    fn from(values: GpuSlice<u16>) -> Self {
        Self::Narrow(values)
    }
}

impl From<GpuSlice<f32>> for ProductOutput {
    fn from(values: GpuSlice<f32>) -> Self {
        Self::Wide(values)
    }
}

impl ProductOutput {
    /// The address. Panics unless there are `wanted` values.
    pub(crate) fn holding(self, wanted: usize) -> u64 {
        match self {
            Self::Narrow(values) => values.holding(wanted, "y"),
            Self::Wide(values) => values.holding(wanted, "y"),
        }
    }

    /// The values from index `first` on.
    pub fn beyond(self, first: usize) -> Self {
        match self {
            Self::Narrow(values) => Self::Narrow(values.from(first)),
            Self::Wide(values) => Self::Wide(values.from(first)),
        }
    }

    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::Wide(_))
    }
}

/// y = x·Wᵀ for `m` rows of x in bf16, with W[rows, columns] packed as [`crate::Weights`]. The
/// weights are read once for each 32 rows of x. For many rows, [`unpack`] and a product by cuBLASLt
/// are faster.
///
/// # Errors
/// [`KernelError::DType`], [`KernelError::Size`].
pub fn gemv(
    m: usize,
    (y, y_stride): (impl Into<ProductOutput>, usize),
    (x, x_stride): (GpuSlice<u16>, usize),
    (dtype, rows, columns): (DType, usize, usize),
    w: GpuSlice<u8>,
) -> Result<KernelCall, KernelError> {
    let y = y.into();
    let (names, together) = match m {
        ..=FEW => (by_format!("gemv"), FEW),
        _ => (by_format!("gemv_several"), SEVERAL),
    };
    let (kernel, w) = packed(names, dtype, rows, columns, w)?;
    let arguments = GemvArguments {
        x: x.holding(extent(m, x_stride, columns), "x"),
        w,
        y: y.holding(extent(m, y_stride, rows)),
        rows: count(rows),
        columns: count(columns),
        x_stride: count(x_stride),
        y_stride: count(y_stride),
        wide: y.is_wide().into(),
        m: count(m),
    };
    Ok(KernelCall::new(
        GpuProgram::Gemv { format: dtype },
        kernel,
        [rows.div_ceil(PANEL), m.div_ceil(together), 1],
        GEMV_THREADS,
        arguments,
    ))
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct UnpackArguments {
    w: u64,
    out: u64,
    rows: i32,
    columns: i32,
}

/// out = W as rows of bf16, `[rows][columns]`.
///
/// # Errors
/// Those of [`gemv`].
pub fn unpack(
    out: GpuSlice<u16>,
    (dtype, rows, columns): (DType, usize, usize),
    w: GpuSlice<u8>,
) -> Result<KernelCall, KernelError> {
    let (kernel, w) = packed(by_format!("unpack"), dtype, rows, columns, w)?;
    out.holding(rows * columns, "out");
    let out = out.aligned(16, "out");
    let arguments = UnpackArguments { w, out, rows: count(rows), columns: count(columns) };
    let grid = [rows.div_ceil(PANEL), columns.div_ceil(THREADS as usize), 1];
    Ok(KernelCall::new(GpuProgram::Unpack { format: dtype }, kernel, grid, THREADS, arguments))
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GatherArguments {
    table: u64,
    tokens: u64,
    out: u64,
    rows: i32,
    columns: i32,
    scale: f32,
    unused: i32,
}

/// As [`crate::gather`], times `scale`. Every token must be a row of the table; a GPU does not
/// check that.
///
/// # Errors
/// Those of [`gemv`].
pub fn gather(
    out: GpuSlice<f32>,
    (dtype, rows, columns): (DType, usize, usize),
    table: GpuSlice<u8>,
    tokens: GpuSlice<i32>,
    scale: f32,
) -> Result<KernelCall, KernelError> {
    let (kernel, table) = packed(by_format!("gather"), dtype, rows, columns, table)?;
    Ok(gather_from(kernel, table, out, (dtype, rows, columns), tokens, scale))
}

/// The same from a table of bf16 that lies row by row.
pub fn gather_rows(
    out: GpuSlice<f32>,
    (rows, columns): (usize, usize),
    table: GpuSlice<u16>,
    tokens: GpuSlice<i32>,
    scale: f32,
) -> KernelCall {
    let at = table.holding(rows * columns, "table");
    gather_from("gather_rows", at, out, (DType::Bf16, rows, columns), tokens, scale)
}

fn gather_from(
    kernel: &'static str,
    table: u64,
    out: GpuSlice<f32>,
    (format, rows, columns): (DType, usize, usize),
    tokens: GpuSlice<i32>,
    scale: f32,
) -> KernelCall {
    let arguments = GatherArguments {
        table,
        tokens: tokens.address,
        out: out.holding(tokens.len() * columns, "out"),
        rows: count(rows),
        columns: count(columns),
        scale,
        unused: 0,
    };
    let grid = [tokens.len(), columns.div_ceil(THREADS as usize), 1];
    KernelCall::new(GpuProgram::Embedding { format }, kernel, grid, THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct PositionArguments {
    x: u64,
    table: u64,
    positions: u64,
    columns: i32,
    offset: i32,
}

/// Adds learned position embeddings: x += row `positions[r]` + `offset` of the table, for each row
/// r of `columns` values. The table must have that row; a GPU does not check that.
pub fn add_positions(
    x: GpuSlice<f32>,
    columns: usize,
    table: GpuSlice<f32>,
    positions: GpuSlice<i32>,
    offset: usize,
) -> KernelCall {
    let arguments = PositionArguments {
        x: x.holding(positions.len() * columns, "x"),
        table: table.address,
        positions: positions.address,
        columns: count(columns),
        offset: count(offset),
    };
    KernelCall::new(GpuProgram::Residual, "add_positions", [positions.len(), 1, 1], THREADS, arguments)
}
