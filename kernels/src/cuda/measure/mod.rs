//! The work that is timed on a GPU, and the check of what it computes.

mod arena;
mod attention_check;
mod attention_places;
mod check;
mod gpu;
mod host_pages;
mod installed;
mod kernels;
mod model_calls;
mod model_kernels;
mod placed_calls;
mod random;
mod small_kernels;
mod transfer;
mod work;

pub use gpu::Gpu;
pub use installed::{InstalledGpuFacts, installed_gpus};
pub use work::{GROUPED_PRODUCT, GpuCheck, GpuFacts, GpuWork, LAYER_OPERATORS, SmallKernel};

#[cfg(test)]
#[path = "../../../tests/stand_in/mod.rs"]
mod stand_in;
