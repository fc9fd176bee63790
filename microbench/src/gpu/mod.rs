//! The measurement of the GPU: launches, streams in its memory, the link to it, and matrix
//! products.
//!
//! Attention is left out: we cannot time the kernels that engines run, and a simple kernel would
//! misrepresent them.

mod device;
mod grid;
mod measured;
mod measurement;
#[cfg(test)]
mod modelled_gpu;
mod near_cores;
mod table;

pub(crate) use measurement::before;
pub use measurement::gpu_kernel_parity;
