//! Hugging Face's `config.json`: reading, writing, and the presets that are shipped.

pub(crate) mod experts;
pub(crate) mod families;
pub(crate) mod gemma;
pub(crate) mod gpt;
pub(crate) mod presets;
pub(crate) mod read;
pub(crate) mod rotary;
pub(crate) mod sizes;
pub(crate) mod windows;
pub(crate) mod write;
