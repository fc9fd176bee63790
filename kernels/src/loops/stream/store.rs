//! How a loop stores its results.

/// The kind of store that a loop uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreInstruction {
    /// Through the caches: a line is read before it is written.
    Ordinary,
    /// Around the caches, whole lines at a time. On the reference path this is an ordinary store.
    NonTemporal,
}
