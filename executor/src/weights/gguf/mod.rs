//! GGUF files: their tensors under Hugging Face's names, and their tokenizers.

pub(super) mod absorbed;
mod layer_names;
mod shard;
pub(super) mod tokenizer;
