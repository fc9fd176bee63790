//! How we learn what a machine can do.
//!
//! [`measure`] fills a [`hwprofiles::Host`]: memory streams and latency, matrix products, attention and
//! element-wise work by teams of pinned threads, what a fork-join and a wake-up cost, and the loopback's link; and the GPU,
//! where there is one.
//! What is measured is what runs: the kernels are the executor's.
#![forbid(unsafe_code)]

mod arena;
mod attention;
mod bandwidth;
mod cache;
mod ceilings;
mod clock;
mod cxl;
mod elementwise;
mod error;
mod experiment;
mod extent;
mod field;
mod frequency;
mod gemm;
mod gpu;
mod host;
mod latency;
mod launch;
mod limits;
mod loaded;
mod mixes;
mod nodes;
mod pages;
mod processor;
mod reach;
mod record;
mod rig;
mod series;
mod slices;
mod statistics;
mod subject;
mod sync;
mod transfer;

pub use error::Error;
pub use gpu::kernels as gpu_kernels;

use hwprofiles::{Host, WriteError};
use std::fmt;

/// How thorough to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Under three seconds, on tiny operands: every table is there and every result verified, but the numbers mean
    /// little. For tests of what surrounds a measurement.
    Tiny,
    /// Under half a minute on two cores.
    Quick,
    /// About five minutes.
    Full,
}

/// What to measure and what to write beside the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How thorough to be.
    pub depth: Depth,
    /// Today, `YYYY-MM-DD`, for the provenance of every number.
    pub date: String,
    /// The command that measures, for the same: `fulcrum bench --quick`.
    pub command: String,
}

/// How far a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Visits to points that are done.
    pub done: usize,
    /// Visits that there will be, as far as one can tell from the time that they take. At the end, and only then,
    /// `done == of`.
    pub of: usize,
    /// What is being measured now: "matrix products in bf16".
    pub what: &'a str,
}

/// Something about a measurement that its reader should know; not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Which table: "matrix products in bf16, 2 threads".
    pub what: String,
    /// What is wrong with it and what would help.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.message)
    }
}

/// A measured host.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What was measured.
    pub host: Host,
    /// What to know about it.
    pub warnings: Vec<Warning>,
}

/// Measures this machine, with the calling thread pinned meanwhile.
///
/// `progress` hears of every visit to a point. `save` gets the host as known so far, again and again: each is a
/// valid host file, so that an interrupted measurement leaves something to use
/// ([`hwprofiles::write_atomically`] of [`Host::to_yaml`]). The last one is the one returned.
///
/// # Errors
/// [`Error::Wrong`] where a kernel computed something wrong: then nothing is reported. Otherwise what `save`
/// returned, and the errors of the operating system.
pub fn measure(
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
    save: &mut dyn FnMut(&Host) -> Result<(), WriteError>,
) -> Result<Measured, Error> {
    gpu::before(options, progress, save, |progress, save| {
        host::measure(&subject::Kernels, options, progress, save)
    })
}
