//! Model files: tensors, their formats and places in files, and tokenizers.

pub(crate) mod checkpoint;
mod format;
pub(crate) mod fused;
mod gguf;
mod layered_gemma;
mod layouts;
mod mixers;
mod mtp_names;
mod names;
mod plain_tensors;
pub(crate) mod random;
pub(crate) mod rotation;
mod shard;
pub(crate) mod tensors;
mod text_growth;
pub(crate) mod tokenizer;
