//! Servers whose GPUs compute everything, or everything but the experts.

mod front_offload;
pub(super) mod ktransformers;
pub(super) mod sglang;
pub(super) mod vllm;
