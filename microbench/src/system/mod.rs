//! What the operating system says about the machine.

pub(crate) mod caches;
pub(crate) mod dimms;
pub(crate) mod installed;
pub(crate) mod limits;
pub(crate) mod numa_nodes;
pub(crate) mod other_programs;
pub(crate) mod pci_link;
pub(crate) mod processor;
