//! Formats of one class of matrices, and the kinds of GGUF files.

pub(crate) mod file_type;
pub(crate) mod weight_format;
