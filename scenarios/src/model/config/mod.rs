//! Hugging Face's `config.json`: reading, writing, and the presets that are shipped.

pub(crate) mod aliases;
pub(crate) mod families;
pub(crate) mod keys;
mod misspelt;
pub(crate) mod mixture;
pub(crate) mod presets;
pub(crate) mod read;
pub(crate) mod readers;
pub(crate) mod repositories;
pub(crate) mod rotary;
pub(crate) mod router;
pub(crate) mod sizes;
pub(crate) mod windows;
pub(crate) mod write;
