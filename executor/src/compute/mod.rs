//! Operators and transfers as kernels, on the host and on a GPU.

mod attention;
pub(crate) mod gpu;
pub(crate) mod host;
pub(crate) mod job;
mod latent;
mod layer_embedding;
mod module_input;
mod normed_experts;
mod predicted_streams;
mod recurrent;
mod routing;
mod shared_expert;
pub(crate) mod transfer;
