//! The GPU under measurement, as a trait, so that a test can measure a modelled one.

use hwprofiles::Seconds;
use kernels::Error;
use kernels::cuda::{Check, Facts, Gpu, Work};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// A GPU under measurement.
pub(super) trait GpuUnderTest: Debug {
    /// Facts about the GPU.
    fn facts(&self) -> &Facts;

    /// The time of one of `calls` calls of `work` ([`Gpu::time`]).
    fn time(&mut self, work: Work, calls: usize) -> Result<Seconds, Error>;

    /// The result of `work` and the right result ([`Gpu::check`]).
    fn check(&mut self, work: Work) -> Result<Option<Check>, Error>;

    /// Time since the GPU was opened.
    fn elapsed(&self) -> Duration;
}

/// The first GPU of this machine.
#[derive(Debug)]
pub(super) struct InstalledGpu {
    gpu: Gpu,
    start: Instant,
}

impl InstalledGpu {
    pub fn new(gpu: Gpu) -> Self {
        Self { gpu, start: Instant::now() }
    }
}

impl GpuUnderTest for InstalledGpu {
    fn facts(&self) -> &Facts {
        self.gpu.facts()
    }

    fn time(&mut self, work: Work, calls: usize) -> Result<Seconds, Error> {
        self.gpu.time(work, calls)
    }

    fn check(&mut self, work: Work) -> Result<Option<Check>, Error> {
        self.gpu.check(work)
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
