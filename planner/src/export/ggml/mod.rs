//! llama.cpp and engines around it, which read GGUF files: what their options mean, and the words
//! of each.

mod gguf;
pub(super) mod llama_cpp;
pub(super) mod lm_studio;
pub(super) mod ollama;
mod options;
