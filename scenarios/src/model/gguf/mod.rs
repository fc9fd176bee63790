//! GGUF files: their header, and the model that it describes.

pub(crate) mod header;
pub(crate) mod to_config;
