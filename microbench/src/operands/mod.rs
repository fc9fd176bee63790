//! The kernels under measurement, and the memory that they work on.

pub(crate) mod arena;
pub(crate) mod array_walk;
pub(crate) mod kernel_set;
pub(crate) mod probe_memory;
