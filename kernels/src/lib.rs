//! CPU kernels with their references; the only unsafe code.
//!
//! Four kinds of thing live here:
//! - what kernels stand on: [`Buffer`] and [`Memory`] (bytes that are counted), [`Pool`] and [`Flag`]
//!   (pinned threads and how they meet), [`Weights`] (matrices in the order that the kernels read);
//! - the kernels of a transformer's forward pass: [`gemm()`], [`attention()`], and the element-wise ones;
//! - [`stream`] and [`Link`]: the loops that measure a memory, and the rate-limited copy that plays a bus;
//! - [`cuda`]: what is timed on a GPU, where there is one.
//!
//! Every fast kernel has a plain reference beside it. Which of the two runs is the pool's [`Path`],
//! chosen from the CPU's features at run time and forced by [`Pool::with_path`].
#![allow(unsafe_code)]

mod activation;
pub mod affinity;
mod amx;
pub mod attention;
mod buffer;
pub mod cuda;
mod disjoint;
mod embedding;
mod error;
pub mod expert;
mod exponential;
mod flag;
mod frequency;
mod futex;
pub mod gemm;
mod interrupt;
mod kv;
mod kv_row;
mod link;
mod memory;
mod norm;
mod path;
pub mod peak;
mod pool;
mod rope;
mod sampling;
mod scratch;
mod self_check;
mod softmax;
pub mod stream;
mod tile;
mod vector;
mod weights;
mod wide_tile;

pub use activation::{gelu_erf, gelu_mul, gelu_tanh, relu, silu_mul, soft_cap};
pub use attention::{Scores, attention};
pub use buffer::{Buffer, Pages};
pub use embedding::gather;
pub use error::Error;
pub use expert::{Expert, experts};
pub use flag::Flag;
pub use frequency::dependent_adds;
pub use gemm::{Group, gemm, grouped_gemm, sparse_gemm};
pub use interrupt::interrupts;
pub use kv::{KvCache, KvCacheMut, KvShape, Span};
pub use link::Link;
pub use memory::Memory;
pub use norm::{add_rms_norm, layer_norm, rms_norm, rms_norm_heads};
pub use path::Path;
pub use pool::Pool;
pub use rope::{RopeTable, rope};
pub use sampling::{Choice, sample};
pub use scratch::Scratch;
pub use self_check::State;
pub use softmax::{argmax, softmax};
pub use vector::{add, add_bias, scale};
pub use weights::{PANEL, SparseWeights, Weights, WeightsView};
