//! Measures what a machine can do.
//!
//! [`measure`] fills a [`hwprofiles::Host`]: memory streams and latency, matrix products, attention
//! and element-wise work by teams of pinned threads, the cost of a fork-join and of a wake-up, and
//! the loopback's link; and the GPU, where there is one. The measured kernels are those that the
//! executor runs.
//!
//! [`installed_parts`] reads the names of this machine's parts and measures nothing.
//!
//! [`check_roofline`] predicts six numerical kernels from such a file and measures them.
//!
//! Rooms, each using only those before it: error, system, operands, method, memory, compute,
//! roofline, host, gpu.
#![forbid(unsafe_code)]

mod compute;
mod error;
mod gpu;
mod host;
mod memory;
mod method;
mod operands;
mod roofline;
mod system;

pub use error::MeasureError;
pub use gpu::gpu_kernel_parity;
pub use method::options::{Depth, MeasuredHost, Options, Progress, Warning};
pub use roofline::check::{CheckedKernel, RooflineCheck, check_roofline};
pub use system::dimms::InstalledModules;
pub use system::installed::{InstalledDevice, InstalledParts, installed_parts};
pub use system::other_programs::{OtherPrograms, beside_other_programs};
pub use system::pci_link::PciLink;

use hwprofiles::{Host, WriteError};
use operands::kernel_set::RealKernels;

/// Measures this machine. The calling thread is pinned while it runs.
///
/// `progress` is called at every visit to a point. `save` gets the host as known so far, again and
/// again: each is a valid host file, so that an interrupted measurement leaves something to use
/// ([`hwprofiles::write_atomically`] of [`Host::to_yaml`]). The last one is the one returned.
///
/// # Errors
/// [`MeasureError::Wrong`] where a kernel computed something wrong: then nothing is reported.
/// Otherwise the errors that `save` returns, and those of the operating system.
pub fn measure(
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
    save: &mut dyn FnMut(&Host) -> Result<(), WriteError>,
) -> Result<MeasuredHost, MeasureError> {
    gpu::before(options, progress, save, |progress, save| {
        host::bench::measure(&RealKernels, options, progress, save)
    })
}
