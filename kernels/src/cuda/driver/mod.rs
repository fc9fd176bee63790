//! The CUDA driver and its libraries: contexts, streams, memory, graphs, compilation and products.

pub(super) mod context;
pub(super) mod device_memory;
pub(super) mod graph;
pub(super) mod nvrtc;
pub(super) mod product;
pub(super) mod result;
pub(super) mod unavailable;
