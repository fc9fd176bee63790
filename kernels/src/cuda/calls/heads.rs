//! Calls for rows of queries, keys and contexts before and behind attention.

use super::call::{KernelCall, count, extent};
use super::rows::blocks;
use super::slice::GpuSlice;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 256;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RowNormArguments {
    x: u64,
    gamma: u64,
    stride: i32,
    columns: i32,
    epsilon: f32,
    unused: i32,
}

/// The RMS norm of `gamma.len()` values of each row, in place: [`crate::rms_norm_heads`] of one
/// head, in bf16, for heads that are too wide for one warp. Rows lie `stride` values apart.
///
/// # Panics
/// Where the lengths do not agree. All calls do.
pub fn rms_norm_row(
    x: GpuSlice<u16>,
    rows: usize,
    stride: usize,
    gamma: GpuSlice<f32>,
    epsilon: f32,
) -> KernelCall {
    let arguments = RowNormArguments {
        x: x.holding(extent(rows, stride, gamma.len()), "x"),
        gamma: gamma.address,
        stride: count(stride),
        columns: count(gamma.len()),
        epsilon,
        unused: 0,
    };
    KernelCall::new(GpuProgram::Heads, "rms_norm_row", [rows, 1, 1], THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GrowthArguments {
    q: u64,
    positions: u64,
    count: u64,
    columns: i32,
    stride: i32,
    scale: f32,
    tokens: f32,
}

/// q *= 1 + `scale` · ln(1 + ⌊(p + 1) / `tokens`⌋) for `columns` values of each row, whose position
/// is p (arXiv:2501.19399, as Llama 4 has it).
pub fn grow_queries(
    (q, stride): (GpuSlice<u16>, usize),
    columns: usize,
    positions: GpuSlice<i32>,
    [scale, tokens]: [f32; 2],
) -> KernelCall {
    let values = positions.len() * columns;
    let arguments = GrowthArguments {
        q: q.holding(extent(positions.len(), stride, columns), "q"),
        positions: positions.address,
        count: values as u64,
        columns: count(columns),
        stride: count(stride),
        scale,
        tokens,
    };
    KernelCall::new(GpuProgram::Heads, "grow_queries", blocks(values), THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct OutputGateArguments {
    x: u64,
    gate: u64,
    count: u64,
    columns: i32,
    stride: i32,
}

/// x *= σ(gate) for `rows` adjacent rows of `columns` values of x, and rows of gates that lie
/// `stride` values apart.
pub fn gate_rows(
    x: GpuSlice<u16>,
    (gate, stride): (GpuSlice<u16>, usize),
    [rows, columns]: [usize; 2],
) -> KernelCall {
    let arguments = OutputGateArguments {
        x: x.holding(rows * columns, "x"),
        gate: gate.holding(extent(rows, stride, columns), "gate"),
        count: (rows * columns) as u64,
        columns: count(columns),
        stride: count(stride),
    };
    KernelCall::new(GpuProgram::Heads, "gate_rows", blocks(rows * columns), THREADS, arguments)
}
