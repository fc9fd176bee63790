//! The kernels of a forward pass on the CPU, each with a plain reference beside it.

pub(crate) mod activation;
pub(crate) mod amx;
pub mod attention;
pub(crate) mod delta;
pub(crate) mod embedding;
pub mod expert;
pub(crate) mod exponential;
pub mod gemm;
pub(crate) mod kv;
pub mod latent;
pub(crate) mod norm;
pub(crate) mod path_check;
pub(crate) mod rope;
pub(crate) mod sampling;
pub(crate) mod softmax;
pub(crate) mod strided;
pub(crate) mod tiles;
pub(crate) mod vector;
pub(crate) mod weights;

pub use activation::{GateFunction, gelu_erf, gelu_mul, gelu_tanh, limited_mul, relu, silu_mul, soft_cap};
pub use attention::{AttentionOperands, Scores, attention};
pub use delta::{DeltaNet, DeltaRows, DeltaState, delta_convolve, gated_delta};
pub use embedding::gather;
pub use expert::{ExpertWeights, experts};
pub use gemm::{GemmGroup, gemm, grouped_gemm, sparse_gemm};
pub use kv::{KvCache, KvCacheMut, KvShape, KvSpan, NewRows};
pub use latent::{LatentCache, LatentOperands, LatentShape, latent_attention};
pub use norm::{add_rms_norm, layer_norm, rms_norm, rms_norm_heads};
pub use path_check::PathCheck;
pub use rope::{RopeTable, rope};
pub use sampling::{SamplingParams, sample};
pub use softmax::{argmax, softmax};
pub use strided::{StridedRows, StridedRowsMut};
pub use vector::{add, add_bias, scale};
pub use weights::{PANEL, SparseWeights, Weights, WeightsView};
