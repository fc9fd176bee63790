//! GGUF files: their header, and the model that it describes.

pub(crate) mod header;
mod later;
mod layered;
mod named_header;
pub(crate) mod tensor_names;
pub(crate) mod to_config;
