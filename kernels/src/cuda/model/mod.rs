//! A GPU that runs models: its programs, its buffers and its queues of work.

mod accelerator;
mod buffer;
mod matrix;
mod queue;

pub use accelerator::Accelerator;
pub use matrix::{GpuMatrix, MatrixOrder};
pub use queue::{Queue, StridedCopy};
