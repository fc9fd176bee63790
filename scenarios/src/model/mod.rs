//! Models: their shape, their operators and work, and the files that describe them.

pub(crate) mod experts;
pub(crate) mod latent_attention;
pub(crate) mod sliding_window;
pub(crate) mod transformer;
pub(crate) mod wiring;

pub(crate) mod operators;

pub(crate) mod config;

pub(crate) mod gguf;
