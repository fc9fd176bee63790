//! What the operating system says about the machine.

pub(crate) mod caches;
pub(crate) mod limits;
pub(crate) mod numa_nodes;
pub(crate) mod processor;
