//! A GPU through CUDA, loaded at run time: what `fulcrum bench` times on it, and the kernels of a forward pass.
//!
//! Nothing of CUDA is needed to build or to start: [`Gpu::open`] looks for the driver and says why there is none
//! ([`Absent`]). `libcublasLt` is looked for besides; without it only products are missing.
//!
//! For a model [`Accelerator`] is the GPU, [`crate::Memory::on_gpu`] its memory, [`Queue`] a stream of its work and [`Event`]
//! what orders streams; [`parity()`] compares its kernels with the CPU's. [`calls`] are the kernels of a forward pass, compiled by NVRTC ([`compile`]) when first called.
//! They are tested on the host, and all of it behind a stand-in for the driver; **none has run on a GPU yet**.
//!
//! For what is timed [`Gpu::time`] is the whole interface: so many calls of a [`Work`] one after another, and the time of each.
//! [`Gpu::check`] compares what that work computes with its definition.

mod accelerator;
mod arena;
mod buffer;
pub mod calls;
mod check;
mod context;
mod gpu;
mod graph;
mod kernels;
mod memory;
mod nvrtc;
mod parity;
mod product;
mod program;
mod queue;
mod random;
mod transfer;
mod work;

pub use accelerator::Accelerator;
pub(crate) use buffer::{OnGpu, Pin};
pub use context::Event;
pub use gpu::Gpu;
pub use nvrtc::compile;
pub use parity::{Parity, parity};
pub use program::Program;
pub use queue::{Apart, Queue};
pub use work::{Absent, Check, Facts, Work};

use crate::Error;
use std::fmt::Display;

/// The result of a call of CUDA, as an error that says what it was for.
fn done<T, E: Display>(what: impl Display, result: Result<T, E>) -> Result<T, Error> {
    result.map_err(|error| Error::Gpu { what: what.to_string(), reason: error.to_string() })
}
