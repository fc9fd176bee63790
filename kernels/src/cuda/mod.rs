//! Kernels of a GPU, with CUDA loaded at run time.
//!
//! Nothing of CUDA is needed to build or to start. [`Accelerator::open`] and [`Gpu::open`] look for
//! the driver and say why there is none ([`GpuUnavailable`]). For [`Gpu`], `libcublasLt` and NVRTC
//! are optional: without them only products, and the kernels that run models, are missing.
//!
//! To run a model, [`Accelerator`] is the GPU, [`crate::MemoryArena::on_gpu`] its memory, [`Queue`]
//! a stream of its work, and [`GpuEvent`] orders streams. [`calls`] has the kernels of a forward
//! pass, which NVRTC compiles ([`compile`]) at their first call. [`parity()`] compares them with
//! the CPU's. Tests run the kernels' text on the host, and the rest behind a stand-in for the
//! driver.
//!
//! To measure a GPU, [`Gpu::time`] runs calls of a [`GpuWork`] one after another and returns the
//! time of each. [`Gpu::check`] compares the results of that work with its definition.

pub mod calls;
mod driver;
mod measure;
mod model;
mod parity;
mod program;

pub use driver::context::GpuEvent;
pub use driver::nvrtc::compile;
pub use driver::unavailable::GpuUnavailable;
pub use measure::{
    GROUPED_PRODUCT, Gpu, GpuCheck, GpuFacts, GpuWork, InstalledGpuFacts, LAYER_OPERATORS, SmallKernel,
    installed_gpus,
};
pub use model::{Accelerator, GpuMatrix, MatrixOrder, Queue, StridedCopy};
pub use parity::{Parity, parity};
pub use program::GpuProgram;
