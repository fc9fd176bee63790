//! CPU and GPU kernels with their references; the only unsafe code.
//!
//! Rooms, each using only those before it: runtime, cpu, loops, cuda.
//!
//! - `runtime` has what kernels stand on: [`Buffer`] and [`MemoryArena`] (counted bytes), [`Pool`]
//!   and [`Flag`] (pinned threads and how they wait for each other), [`Path`] (the instruction
//!   set);
//! - `cpu` has the kernels of a transformer's forward pass: [`gemm()`], [`attention()`], the
//!   element-wise ones, and [`Weights`] (matrices in the order in which the kernels read them);
//! - `loops` has what measures a machine: [`stream`], [`peak`] and [`numeric`], and
//!   [`RateLimitedLink`], a copy at the rate of a bus;
//! - [`cuda`] has the same kernels on a GPU, and the work that is timed there.
//!
//! Every fast kernel has a plain reference beside it. The pool's [`Path`] decides which of the two
//! runs. It is chosen from the CPU's features at run time; [`Pool::with_path`] forces it.
#![allow(unsafe_code)]

mod cpu;
pub mod cuda;
mod loops;
mod runtime;

pub use cpu::{
    AttentionOperands, DeltaNet, DeltaRows, DeltaState, ExpertWeights, GateFunction, GemmGroup, KvCache,
    KvCacheMut, KvShape, KvSpan, LatentCache, LatentOperands, LatentShape, NewRows, PANEL, PathCheck,
    RopeTable, SamplingParams, Scores, SparseWeights, StreamRouter, StridedRows, StridedRowsMut,
    WORTH_SHARING, Weights, WeightsView, add, add_bias, add_rms_norm, argmax, attention, correct_streams,
    delta_convolve, dequantise, expert, experts, float8_value, gated_delta, gather, gelu_erf, gelu_mul,
    gelu_tanh, gemm, grouped_gemm, latent, latent_attention, layer_norm, limited_mul, mamba2, match_streams,
    moderate_scales, predict_streams, quantise_float8, relu, rms_norm, rms_norm_heads, rope, sample, scale,
    silu_mul, soft_cap, softmax, sparse_gemm,
};
pub use loops::{RateLimitedLink, dependent_adds, numeric, peak, stream};
pub use runtime::{
    Buffer, Flag, KernelError, MemoryArena, PageBacking, Path, Pool, Scratch, Word, affinity, interrupt_flag,
};
