//! Numbers: statistics, formatting for people, and their form in files.

pub(crate) mod format;
pub(crate) mod pair;
pub(crate) mod serde_forms;
pub use hwprofiles::statistics;
pub(crate) mod text;
