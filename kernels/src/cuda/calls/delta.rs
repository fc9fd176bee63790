//! Calls of recurrences: gated delta nets, and Mamba-2.

use super::call::{KernelCall, count, extent};
use super::slice::GpuSlice;
use crate::cpu::DeltaNet;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 128;
/// The most taps of a convolution.
pub const MOST_TAPS: usize = 8;
/// The most values of a key, so that its part of a state fits the registers of a thread.
pub const MOST_KEY_VALUES: usize = 256;

/// The new tokens of a pass in a recurrent layer, and the states of its sequences.
#[derive(Debug, Clone, Copy)]
pub struct RecurrentRows {
    /// The widths.
    pub net: DeltaNet,
    /// Rows of the projection ([`DeltaNet`]), and their distance.
    pub projected: (GpuSlice<u16>, usize),
    /// The number of rows.
    pub rows: usize,
    /// `[page]`[kept values](DeltaNet::kept).
    pub state: GpuSlice<f32>,
    /// By sequence in the pass: the page of its state.
    pub table: GpuSlice<i32>,
    /// As in [`super::PromptStep`]. A sequence without earlier positions starts with a state of 0.
    pub spans: GpuSlice<i32>,
}

impl RecurrentRows {
    /// The address of the rows. Panics where shapes do not agree.
    fn check(&self) -> u64 {
        let Self { net, rows, .. } = *self;
        assert!(net.value_heads.is_multiple_of(net.key_heads) && net.taps > 0, "{net:?}");
        assert!(net.taps <= MOST_TAPS && net.key_dim <= MOST_KEY_VALUES, "{net:?}");
        assert!(self.spans.len() / 4 <= self.table.len(), "a page for each sequence");
        let (projected, stride) = self.projected;
        // One of Mamba-2 has one number less for each head.
        let width = net.width() - net.value_heads;
        projected.holding(extent(rows, stride, width), "the projection")
    }

    fn program(&self) -> GpuProgram {
        GpuProgram::Delta { key_dim: self.net.key_dim }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ConvolveArguments {
    rows: u64,
    state: u64,
    weights: u64,
    bias: u64,
    pages: u64,
    spans: u64,
    stride: i32,
    channels: i32,
    taps: i32,
    matrices: i32,
    kept: i32,
    unused: i32,
}

/// As [`crate::delta_convolve`], in bf16 with kept inputs in f32.
///
/// # Panics
/// Where the lengths do not agree, as for the other calls of recurrences.
pub fn delta_convolve(
    rows: RecurrentRows,
    weights: GpuSlice<f32>,
    bias: Option<GpuSlice<f32>>,
) -> KernelCall {
    let net = rows.net;
    let channels = net.channels();
    let arguments = ConvolveArguments {
        rows: rows.check(),
        state: rows.state.address,
        weights: weights.holding(channels * net.taps, "weights of the convolution"),
        bias: bias.map_or(0, |bias| bias.holding(channels, "a bias of the convolution")),
        pages: rows.table.address,
        spans: rows.spans.address,
        stride: count(rows.projected.1),
        channels: count(channels),
        taps: count(net.taps),
        matrices: count(net.matrices()),
        kept: count(net.kept()),
        unused: 0,
    };
    let grid = [channels.div_ceil(THREADS as usize), rows.spans.len() / 4, 1];
    KernelCall::new(rows.program(), "convolve", grid, THREADS, arguments)
}

/// The vectors of a recurrence, as in [`crate::DeltaRows`].
#[derive(Debug, Clone, Copy)]
pub struct DeltaVectors {
    /// By head of values: ln of its rate of decay.
    pub log_rates: GpuSlice<f32>,
    /// By head of values: the bias of its time step.
    pub step_bias: GpuSlice<f32>,
    /// The weight of the norm behind it.
    pub gamma: GpuSlice<f32>,
    /// The norm's ε.
    pub epsilon: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DeltaArguments {
    rows: u64,
    out: u64,
    state: u64,
    log_rates: u64,
    step_bias: u64,
    pages: u64,
    spans: u64,
    skip: u64,
    stride: i32,
    key_heads: i32,
    value_heads: i32,
    value_dim: i32,
    kept: i32,
    tiled: i32,
    /// Where q, k, v and z begin in a row.
    starts: [i32; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GatedNormArguments {
    x: u64,
    gate: u64,
    gamma: u64,
    stride: i32,
    heads: i32,
    head_dim: i32,
    count: i32,
    epsilon: f32,
    unused: i32,
}

/// As [`crate::gated_delta`]: two calls, to be run one after the other. What is between them, the
/// output in front of the norm, is rounded to bf16. `out` has adjacent rows.
pub fn gated_delta(rows: RecurrentRows, vectors: DeltaVectors, out: GpuSlice<u16>) -> [KernelCall; 2] {
    let net = rows.net;
    let keys = net.key_heads * net.key_dim;
    let norm = ("norm_and_gate", [net.value_heads, net.value_dim], net.value_dim);
    [rows.recur("gated_delta", vectors, 0, out, [0, keys, 2 * keys]), rows.norm(norm, vectors, out)]
}

/// As [`crate::mamba2`], in the same way; `skip` is D by head.
pub fn mamba2(
    rows: RecurrentRows,
    vectors: DeltaVectors,
    skip: GpuSlice<f32>,
    out: GpuSlice<u16>,
) -> [KernelCall; 2] {
    let net = rows.net;
    let (keys, inner) = (net.key_heads * net.key_dim, net.value_heads * net.value_dim);
    let skip = skip.holding(net.value_heads, "skips");
    let norm = ("gate_and_norm", [net.key_heads, inner / net.key_heads], inner);
    [rows.recur("mamba2", vectors, skip, out, [inner + keys, inner, 0]), rows.norm(norm, vectors, out)]
}

impl RecurrentRows {
    /// The recurrence; q, k and v begin at `starts` in a row.
    fn recur(
        &self,
        kernel: &'static str,
        vectors: DeltaVectors,
        skip: u64,
        out: GpuSlice<u16>,
        starts: [usize; 3],
    ) -> KernelCall {
        let DeltaNet { key_heads, value_heads, value_dim, .. } = self.net;
        let [q, k, v] = starts;
        let arguments = DeltaArguments {
            rows: self.check(),
            out: out.holding(self.rows * value_heads * value_dim, "out"),
            state: self.state.address,
            log_rates: vectors.log_rates.holding(value_heads, "rates"),
            step_bias: vectors.step_bias.holding(value_heads, "biases of steps"),
            pages: self.table.address,
            spans: self.spans.address,
            skip,
            stride: count(self.projected.1),
            key_heads: count(key_heads),
            value_heads: count(value_heads),
            value_dim: count(value_dim),
            kept: count(self.net.kept()),
            tiled: self.net.tiled.into(),
            starts: [q, k, v, self.net.channels()].map(count),
        };
        // As many lanes share a column as its keys' registers need.
        let columns = THREADS as usize / if self.net.key_dim > 128 { 8 } else { 4 };
        let grid = [value_dim.div_ceil(columns), value_heads, self.spans.len() / 4];
        KernelCall::new(self.program(), kernel, grid, THREADS, arguments)
    }

    /// The norm and the gate of parts of a row, with `weights` weights.
    fn norm(
        &self,
        (kernel, [parts, width], weights): (&'static str, [usize; 2], usize),
        vectors: DeltaVectors,
        out: GpuSlice<u16>,
    ) -> KernelCall {
        let (projected, stride) = self.projected;
        let all = self.rows * parts;
        let arguments = GatedNormArguments {
            x: out.address,
            gate: projected.from(self.net.channels().min(projected.len())).address,
            gamma: vectors.gamma.holding(weights, "the norm"),
            stride: count(stride),
            heads: count(parts),
            head_dim: count(width),
            count: count(all),
            epsilon: vectors.epsilon,
            unused: 0,
        };
        // A warp or a block per part.
        let blocks = if kernel == "norm_and_gate" { all.div_ceil(THREADS as usize / 32) } else { all };
        KernelCall::new(self.program(), kernel, [blocks, 1, 1], THREADS, arguments)
    }
}
