//! What is read: documents with their settings, their mappings, and what can be wrong with them.

pub(crate) mod document;
pub(crate) mod error;
pub(crate) mod section;
pub(crate) mod setting;
