//! The comparison of a GPU's kernels with the CPU's.

mod bench;
mod caches;
mod experts;
mod mixers;
mod rows;
mod weights;

pub use bench::Parity;

use crate::cuda::model::Accelerator;
use crate::runtime::KernelError;
use bench::ParityBench;
use std::sync::Arc;

/// Runs every kernel of a forward pass on awkward shapes, on the GPU and on the CPU.
///
/// # Errors
/// [`KernelError::Gpu`] where a kernel does not compile or run.
pub fn parity(gpu: &Arc<Accelerator>) -> Result<Vec<Parity>, KernelError> {
    let mut bench = ParityBench::new(gpu)?;
    rows::check(&mut bench)?;
    weights::check(&mut bench)?;
    caches::check(&mut bench)?;
    experts::check(&mut bench)?;
    mixers::check(&mut bench)?;
    Ok(bench.into_found())
}
