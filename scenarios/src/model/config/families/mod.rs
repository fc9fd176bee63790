//! The families of models whose `config.json` is read.

mod classes;
pub(crate) mod decoders;
mod defaults;
pub(crate) mod family;
pub(crate) mod mixture_rules;
pub(crate) mod nearest;
mod registry;
pub(crate) mod wrappers;
