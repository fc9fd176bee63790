//! Model files: which tensors a model has, where they lie, and how their values are written.

pub(crate) mod checkpoint;
mod format;
pub(crate) mod fused;
mod gguf_shard;
mod names;
pub(crate) mod random;
pub(crate) mod rotation;
mod shard;
pub(crate) mod tensors;
