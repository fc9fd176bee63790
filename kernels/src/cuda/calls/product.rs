//! Kernels over packed weights.

use super::{Call, Program, Values, count, extent};
use crate::{Error, PANEL};
use bytemuck::{Pod, Zeroable};
use hwprofiles::DType;

const THREADS: u32 = 256;

/// The kernel for a format, and the address of a matrix that is all there.
fn packed(
    of: [&'static str; 3],
    dtype: DType,
    rows: usize,
    columns: usize,
    bytes: Values<u8>,
) -> Result<(&'static str, u64), Error> {
    let kernel = match dtype {
        DType::Bf16 => of[0],
        DType::Int8 => of[1],
        DType::Int4 => of[2],
        _ => return Err(Error::DType { what: "weights of a GPU", dtype, accepted: "bf16, int8, int4" }),
    };
    let wanted = dtype.matrix_bytes(rows as u64, columns as u64).get() as usize;
    if bytes.len() != wanted {
        let got = bytes.len();
        return Err(Error::Size { what: "a matrix", rows, columns, dtype, wanted, got });
    }
    Ok((kernel, bytes.aligned(16, "weights")))
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
}

/// y = x·Wᵀ for `m` rows of x, bf16, with W[rows, columns] as [`crate::Weights`] packs it. The weights are read once
/// per row of x: from a few rows on [`unpack`] and a product by cuBLASLt are faster.
///
/// # Errors
/// [`Error::DType`], [`Error::Size`].
pub fn gemv(
    m: usize,
    (y, y_stride): (Values<u16>, usize),
    (x, x_stride): (Values<u16>, usize),
    (dtype, rows, columns): (DType, usize, usize),
    w: Values<u8>,
) -> Result<Call, Error> {
    let (kernel, w) = packed(["gemv_bf16", "gemv_int8", "gemv_int4"], dtype, rows, columns, w)?;
    let arguments = GemvArguments {
        x: x.holding(extent(m, x_stride, columns), "x"),
        w,
        y: y.holding(extent(m, y_stride, rows), "y"),
        rows: count(rows),
        columns: count(columns),
        x_stride: count(x_stride),
        y_stride: count(y_stride),
    };
    Ok(Call::new(Program::Gemv, kernel, [rows.div_ceil(PANEL), m, 1], THREADS, arguments))
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct UnpackArguments {
    w: u64,
    out: u64,
    rows: i32,
    columns: i32,
}

/// out = W as plain rows of bf16, `[rows][columns]`.
///
/// # Errors
/// As [`gemv`].
pub fn unpack(
    out: Values<u16>,
    (dtype, rows, columns): (DType, usize, usize),
    w: Values<u8>,
) -> Result<Call, Error> {
    let (kernel, w) = packed(["unpack_bf16", "unpack_int8", "unpack_int4"], dtype, rows, columns, w)?;
    let out = out.holding(rows * columns, "out");
    let arguments = UnpackArguments { w, out, rows: count(rows), columns: count(columns) };
    let grid = [rows.div_ceil(PANEL), columns.div_ceil(THREADS as usize), 1];
    Ok(Call::new(Program::Unpack, kernel, grid, THREADS, arguments))
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GatherArguments {
    table: u64,
    tokens: u64,
    out: u64,
    rows: i32,
    columns: i32,
}

/// [`crate::gather`]. Every token must be a row of the table: nobody checks that on a GPU.
///
/// # Errors
/// As [`gemv`].
pub fn gather(
    out: Values<f32>,
    (dtype, rows, columns): (DType, usize, usize),
    table: Values<u8>,
    tokens: Values<i32>,
) -> Result<Call, Error> {
    let (kernel, table) = packed(["gather_bf16", "gather_int8", "gather_int4"], dtype, rows, columns, table)?;
    let arguments = GatherArguments {
        table,
        tokens: tokens.address,
        out: out.holding(tokens.len() * columns, "out"),
        rows: count(rows),
        columns: count(columns),
    };
    Ok(Call::new(Program::Embedding, kernel, [tokens.len(), 1, 1], THREADS, arguments))
}
