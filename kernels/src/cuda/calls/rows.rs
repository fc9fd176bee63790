//! Calls of kernels that go over rows: norms, rotary embedding, activations, sums.

use super::call::{KernelCall, count, extent};
use super::product::ProductOutput;
use super::slice::GpuSlice;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 256;
/// The most blocks of a kernel over many values. With more values each thread takes several.
const MOST_BLOCKS: usize = 1 << 12;

pub(super) fn blocks(values: usize) -> [usize; 3] {
    [values.div_ceil(THREADS as usize).min(MOST_BLOCKS), 1, 1]
}

/// Operands of a norm over rows of `gamma.len()` values.
#[derive(Debug, Clone, Copy)]
pub struct NormOperands {
    /// The residual stream.
    pub x: GpuSlice<f32>,
    /// What is added to `x` before the norm, and stays in it.
    pub delta: Option<GpuSlice<u16>>,
    /// The result, bf16.
    pub y: GpuSlice<u16>,
    /// The factor of each column.
    pub gamma: GpuSlice<f32>,
    /// ε.
    pub epsilon: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct NormArguments {
    x: u64,
    delta: u64,
    gamma: u64,
    beta: u64,
    y: u64,
    columns: i32,
    epsilon: f32,
}

fn norm(kernel: &'static str, rows: usize, norm: NormOperands, beta: Option<GpuSlice<f32>>) -> KernelCall {
    let columns = norm.gamma.len();
    let values = rows * columns;
    let arguments = NormArguments {
        x: norm.x.holding(values, "x"),
        delta: norm.delta.map_or(0, |delta| delta.holding(values, "delta")),
        gamma: norm.gamma.address,
        beta: beta.map_or(0, |beta| beta.holding(columns, "beta")),
        y: norm.y.holding(values, "y"),
        columns: count(columns),
        epsilon: norm.epsilon,
    };
    KernelCall::new(GpuProgram::Norm, kernel, [rows, 1, 1], threads_of_row(rows, columns), arguments)
}

/// Threads of a norm's row. One row is done soonest by many; of rows that fill the GPU, threads
/// with sixteen values each leave fewer sums to wait for.
fn threads_of_row(rows: usize, columns: usize) -> u32 {
    const MANY: usize = 256;
    if rows < MANY { THREADS } else { (columns.div_ceil(16).next_multiple_of(32) as u32).clamp(32, THREADS) }
}

/// As [`crate::rms_norm`].
///
/// # Panics
/// Where the lengths do not agree. All calls do.
pub fn rms_norm(rows: usize, operands: NormOperands) -> KernelCall {
    norm("rms_norm", rows, operands, None)
}

/// As [`crate::layer_norm`].
pub fn layer_norm(rows: usize, operands: NormOperands, beta: GpuSlice<f32>) -> KernelCall {
    norm("layer_norm", rows, operands, Some(beta))
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AddNormArguments {
    x: u64,
    y: u64,
    gamma: u64,
    columns: i32,
    epsilon: f32,
}

/// As [`crate::add_rms_norm`]: x += the norm of `rows` rows of y.
pub fn add_rms_norm(
    rows: usize,
    x: GpuSlice<f32>,
    y: GpuSlice<u16>,
    gamma: GpuSlice<f32>,
    epsilon: f32,
) -> KernelCall {
    let columns = gamma.len();
    let arguments = AddNormArguments {
        x: x.holding(rows * columns, "x"),
        y: y.holding(rows * columns, "what is added"),
        gamma: gamma.address,
        columns: count(columns),
        epsilon,
    };
    KernelCall::new(GpuProgram::Norm, "add_rms_norm", [rows, 1, 1], threads_of_row(rows, columns), arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct HeadNormArguments {
    x: u64,
    gamma: u64,
    stride: i32,
    heads: i32,
    head_dim: i32,
    count: i32,
    epsilon: f32,
    unused: i32,
}

/// As [`crate::rms_norm_heads`], in bf16.
pub fn rms_norm_heads(
    x: GpuSlice<u16>,
    rows: usize,
    stride: usize,
    heads: usize,
    gamma: GpuSlice<f32>,
    epsilon: f32,
) -> KernelCall {
    head_norms(x, [rows, stride], [heads, gamma.len()], gamma.address, epsilon)
}

/// The same without weights, for heads of `head_dim` values.
pub fn unit_heads(
    x: GpuSlice<u16>,
    [rows, stride]: [usize; 2],
    [heads, head_dim]: [usize; 2],
    epsilon: f32,
) -> KernelCall {
    head_norms(x, [rows, stride], [heads, head_dim], 0, epsilon)
}

fn head_norms(
    x: GpuSlice<u16>,
    [rows, stride]: [usize; 2],
    [heads, head_dim]: [usize; 2],
    gamma: u64,
    epsilon: f32,
) -> KernelCall {
    let arguments = HeadNormArguments {
        x: x.holding(extent(rows, stride, heads * head_dim), "x"),
        gamma,
        stride: count(stride),
        heads: count(heads),
        head_dim: count(head_dim),
        count: count(rows * heads),
        epsilon,
        unused: 0,
    };
    let blocks = (rows * heads).div_ceil(THREADS as usize / 32);
    KernelCall::new(GpuProgram::Norm, "rms_norm_heads", [blocks, 1, 1], THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RopeArguments {
    x: u64,
    cosines: u64,
    sines: u64,
    positions: u64,
    stride: i32,
    heads: i32,
    head_dim: i32,
    half: i32,
    interleaved: i32,
    unused: i32,
}

/// The angles of a rotary embedding and its order of pairs: a [`crate::RopeTable`] on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    /// `[position][half]`.
    pub cosines: GpuSlice<f32>,
    /// `[position][half]`.
    pub sines: GpuSlice<f32>,
    /// Half of the number of values of a head that are rotated.
    pub half: usize,
    /// Whether a pair is two neighbouring values and not one value of each half.
    pub interleaved: bool,
}

/// As [`crate::rope()`], in bf16. Every position must be in the table; a GPU does not check that.
pub fn rope(
    x: GpuSlice<u16>,
    stride: usize,
    heads: usize,
    head_dim: usize,
    rotation: Rotation,
    positions: GpuSlice<i32>,
) -> KernelCall {
    let Rotation { cosines, sines, half, interleaved } = rotation;
    assert!(2 * half <= head_dim && cosines.len() == sines.len());
    let rows = positions.len();
    let arguments = RopeArguments {
        x: x.holding(extent(rows, stride, heads * head_dim), "x"),
        cosines: cosines.address,
        sines: sines.address,
        positions: positions.address,
        stride: count(stride),
        heads: count(heads),
        head_dim: count(head_dim),
        half: count(half),
        interleaved: interleaved.into(),
        unused: 0,
    };
    // A thread takes four pairs where they lie side by side.
    let blocks = (heads * half).div_ceil(4 * THREADS as usize).max(1);
    KernelCall::new(GpuProgram::Rope, "rope", [rows, blocks, 1], THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GatedArguments {
    gate: u64,
    up: u64,
    out: u64,
    count: u64,
    columns: i32,
    stride: i32,
}

/// As [`crate::silu_mul`], in bf16.
pub fn silu_mul(
    out: GpuSlice<u16>,
    gate: GpuSlice<u16>,
    up: GpuSlice<u16>,
    stride: usize,
    rows: usize,
    columns: usize,
) -> KernelCall {
    gated("silu_mul", out, [gate, up], stride, [rows, columns])
}

/// As [`crate::gelu_mul`], in bf16.
pub fn gelu_mul(
    out: GpuSlice<u16>,
    gate: GpuSlice<u16>,
    up: GpuSlice<u16>,
    stride: usize,
    rows: usize,
    columns: usize,
) -> KernelCall {
    gated("gelu_mul", out, [gate, up], stride, [rows, columns])
}

/// As [`crate::limited_mul`], in bf16.
pub fn limited_mul(
    out: GpuSlice<u16>,
    [gate, up]: [GpuSlice<u16>; 2],
    stride: usize,
    [rows, columns]: [usize; 2],
    limit: f32,
) -> KernelCall {
    let of = gated_arguments(out, [gate, up], stride, [rows, columns]);
    let arguments = LimitedArguments { of, limit, unused: 0 };
    KernelCall::new(GpuProgram::Activation, "limited_mul", blocks(rows * columns), THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct LimitedArguments {
    of: GatedArguments,
    limit: f32,
    unused: i32,
}

fn gated(
    kernel: &'static str,
    out: GpuSlice<u16>,
    gate_and_up: [GpuSlice<u16>; 2],
    stride: usize,
    [rows, columns]: [usize; 2],
) -> KernelCall {
    let arguments = gated_arguments(out, gate_and_up, stride, [rows, columns]);
    // A thread takes eight values at a time where they lie so.
    KernelCall::new(GpuProgram::Activation, kernel, blocks((rows * columns).div_ceil(8)), THREADS, arguments)
}

fn gated_arguments(
    out: GpuSlice<u16>,
    [gate, up]: [GpuSlice<u16>; 2],
    stride: usize,
    [rows, columns]: [usize; 2],
) -> GatedArguments {
    let read = extent(rows, stride, columns);
    GatedArguments {
        gate: gate.holding(read, "gate"),
        up: up.holding(read, "up"),
        out: out.holding(rows * columns, "out"),
        count: (rows * columns) as u64,
        columns: count(columns),
        stride: count(stride),
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SoftCapArguments {
    x: u64,
    count: u64,
    columns: i32,
    stride: i32,
    cap: f32,
    unused: i32,
}

/// As [`crate::soft_cap`], for `rows` rows of `columns` values that lie `stride` apart.
pub fn soft_cap(x: GpuSlice<f32>, stride: usize, rows: usize, columns: usize, cap: f32) -> KernelCall {
    let arguments = SoftCapArguments {
        x: x.holding(extent(rows, stride, columns), "x"),
        count: (rows * columns) as u64,
        columns: count(columns),
        stride: count(stride),
        cap,
        unused: 0,
    };
    KernelCall::new(GpuProgram::Activation, "soft_cap", blocks(rows * columns), THREADS, arguments)
}

/// Functions of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivationFunction {
    /// As [`crate::relu`].
    Relu,
    /// The square of [`crate::relu`].
    ReluSquared,
    /// As [`crate::gelu_tanh`].
    GeluTanh,
    /// As [`crate::gelu_erf`].
    GeluErf,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct MapArguments {
    x: u64,
    count: u64,
}

/// x = f(x).
pub fn activation(which: ActivationFunction, x: GpuSlice<u16>) -> KernelCall {
    let kernel = match which {
        ActivationFunction::Relu => "relu",
        ActivationFunction::ReluSquared => "relu_squared",
        ActivationFunction::GeluTanh => "gelu_tanh",
        ActivationFunction::GeluErf => "gelu_erf",
    };
    let arguments = MapArguments { x: x.address, count: x.len() as u64 };
    KernelCall::new(GpuProgram::Activation, kernel, blocks(x.len()), THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AddArguments {
    x: u64,
    y: u64,
    count: u64,
}

/// x += y.
pub fn add(x: GpuSlice<f32>, y: GpuSlice<u16>) -> KernelCall {
    let arguments =
        AddArguments { x: x.address, y: y.holding(x.len(), "what is added"), count: x.len() as u64 };
    // A thread takes four values at a time where they lie so.
    KernelCall::new(GpuProgram::Residual, "add", blocks(x.len().div_ceil(4)), THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ScaleArguments {
    x: u64,
    factor: u64,
    count: u64,
}

/// x *= the first value of `factor`.
pub fn scale(x: GpuSlice<f32>, factor: GpuSlice<f32>) -> KernelCall {
    let (address, count) = (x.address, x.len() as u64);
    let arguments = ScaleArguments { x: address, factor: factor.holding(1, "the factor"), count };
    KernelCall::new(GpuProgram::Residual, "scale", blocks(x.len()), THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AddBiasArguments {
    y: u64,
    bias: u64,
    count: u64,
    columns: i32,
    stride: i32,
    wide: i32,
    unused: i32,
}

/// y += bias for every row of `bias.len()` values. Rows lie `stride` values apart.
pub fn add_bias(y: impl Into<ProductOutput>, stride: usize, rows: usize, bias: GpuSlice<f32>) -> KernelCall {
    let (y, values) = (y.into(), rows * bias.len());
    let arguments = AddBiasArguments {
        y: y.holding(extent(rows, stride, bias.len())),
        bias: bias.address,
        count: values as u64,
        columns: count(bias.len()),
        stride: count(stride),
        wide: y.is_wide().into(),
        unused: 0,
    };
    KernelCall::new(GpuProgram::Residual, "add_bias", blocks(values), THREADS, arguments)
}
