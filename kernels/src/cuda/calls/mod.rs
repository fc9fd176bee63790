//! Calls of our own kernels: the parts of a forward pass on a GPU besides products by cuBLASLt.
//!
//! A [`KernelCall`] is data: a kernel, its blocks and its arguments. It is made from addresses and
//! shapes, which are checked then. [`super::Queue`] runs it on a GPU; tests run it on the host,
//! from the same text.
//!
//! Values between kernels are bf16, as products take them. The residual stream is f32. Weights are
//! packed as for the CPU ([`crate::Weights`]), and a KV cache with one page per sequence has the
//! CPU's layout, so that bytes are copied between them unchanged.

mod attention;
mod call;
mod delta;
mod experts;
mod heads;
mod hop;
mod mixture;
mod product;
mod rows;
mod sampling;
mod slice;

pub use attention::{
    DecodeStep, EnteringRows, GpuRows, LEAST_DECODE, MOST_VALUES, PagedCache, PromptStep, append, decode,
    decode_chunk, decode_scratch, enter_heads, prefill,
};
pub use call::KernelCall;
pub use delta::{
    DeltaVectors, MOST_KEY_VALUES, MOST_TAPS, RecurrentRows, delta_convolve, gated_delta, mamba2,
};
pub use experts::{ExpertMatrices, ExpertRouting};
pub use heads::{gate_rows, grow_queries, rms_norm_row};
pub use hop::{copy_rows, narrow_rows, widen_rows};
pub use mixture::{RouterRule, add_shared, weigh_experts};
pub use product::{GPU_MATRICES, ProductOutput, add_positions, gather, gather_rows, gemv, unpack};
pub use rows::{
    ActivationFunction, NormOperands, Rotation, activation, add, add_bias, add_rms_norm, gelu_mul,
    layer_norm, limited_mul, rms_norm, rms_norm_heads, rope, scale, silu_mul, soft_cap, unit_heads,
};
pub use sampling::sample;
pub use slice::GpuSlice;
