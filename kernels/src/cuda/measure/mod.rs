//! The work that is timed on a GPU, and the check of what it computes.

mod arena;
mod check;
mod gpu;
mod host_pages;
mod installed;
mod kernels;
mod random;
mod transfer;
mod work;

pub use gpu::Gpu;
pub use installed::{InstalledGpuFacts, installed_gpus};
pub use work::{GpuCheck, GpuFacts, GpuWork};

#[cfg(test)]
#[path = "../../../tests/stand_in/mod.rs"]
mod stand_in;
