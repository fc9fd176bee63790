//! The families of models whose `config.json` is read.

pub(crate) mod classes;
mod defaults;
pub(crate) mod family;
pub(crate) mod nearest;
pub(crate) mod wrappers;
