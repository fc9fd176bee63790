//! The formats of quantised files by class of matrices: as llama.cpp would choose them for a model,
//! and as published files have them.

pub(crate) mod gguf_formats;
pub(crate) mod llama_mixture;
pub(crate) mod modules;
pub(crate) mod safetensors_formats;
pub(crate) mod usual_checkpoint;
