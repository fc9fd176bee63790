//! The measurement of the GPU: launches, streams in its memory, the link to it, matrix products,
//! and attention and small kernels as Fulcrum's executor runs them.
//!
//! The kernels of other engines are not timed, because no library has them.

mod attention_grid;
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
