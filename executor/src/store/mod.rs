//! Everything that a run keeps in memory.

pub(crate) mod buffers;
pub(crate) mod cache_layout;
pub(crate) mod carried;
mod constants;
pub(crate) mod locks;
mod orders;
mod pins;
pub(crate) mod slices;
