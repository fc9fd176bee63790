//! Everything that a run keeps in memory.

pub(crate) mod buffers;
mod constants;
pub(crate) mod locks;
mod pins;
pub(crate) mod slices;
