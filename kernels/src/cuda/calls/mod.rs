//! Calls of our own kernels: what a forward pass asks of a GPU besides products.
//!
//! A [`KernelCall`] is data: which kernel, over which blocks, with which arguments. It is made from addresses and shapes, which
//! are checked then, and knows nothing of a GPU. What runs it is another matter: [`super::Queue`] on a GPU, and in
//! tests the host, over the same text.
//!
//! Values that go from kernel to kernel are bf16, as products want them; what layers add to is f32. Weights are packed
//! as for the CPU ([`crate::Weights`]), and a KV cache with one page per sequence lies as the CPU's does, so that bytes go
//! from one to the other unchanged.

mod attention;
mod call;
mod experts;
mod hop;
mod product;
mod rows;
mod sampling;
mod slice;

pub use attention::{
    DecodeStep, MOST_VALUES, PagedCache, append, decode, decode_chunk, decode_scratch, prefill,
};
pub use call::KernelCall;
pub use experts::{ExpertMatrices, ExpertRouting};
pub use hop::{copy_rows, narrow_rows, widen_rows};
pub use product::{ProductOutput, add_positions, gather, gemv, unpack};
pub use rows::{
    ActivationFunction, NormOperands, Rotation, activation, add, add_bias, add_rms_norm, gelu_mul,
    layer_norm, rms_norm, rms_norm_heads, rope, silu_mul, soft_cap,
};
pub use sampling::sample;
pub use slice::GpuSlice;
