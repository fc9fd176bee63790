//! What numbers become: statistics of several, texts for people, fields of files.

pub(crate) mod format;
pub(crate) mod pair;
pub(crate) mod serde_forms;
pub mod statistics;
pub(crate) mod text;
