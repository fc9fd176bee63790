//! Models: their shape, their operators and work, and the files that describe them.
//!
//! The files of this folder hold a model's shape and use none of the folders below it; `formats`
//! uses nothing, `operators` the shape and `formats`, `quantised` the operators, `config` the
//! shape, and `gguf` the shape and `config`.

pub(crate) mod architecture;
pub(crate) mod experts;
pub(crate) mod latent_attention;
pub(crate) mod layer_shapes;
pub(crate) mod mixer;
pub(crate) mod positions;
pub(crate) mod recurrence;
pub(crate) mod sliding_window;
pub(crate) mod transformer;
pub(crate) mod wiring;

pub(crate) mod config;
pub(crate) mod formats;
pub(crate) mod gguf;
pub(crate) mod operators;
pub(crate) mod quantised;
