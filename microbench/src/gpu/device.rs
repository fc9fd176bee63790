//! The GPU under measurement, as a trait, so that a test can measure a modelled one.

use hwprofiles::Seconds;
use kernels::KernelError;
use kernels::cuda::{Gpu, GpuCheck, GpuFacts, GpuWork};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// A GPU under measurement.
pub(super) trait GpuUnderTest: Debug {
    /// GpuFacts about the GPU.
    fn facts(&self) -> &GpuFacts;

    /// The time of one of `calls` calls of `work` ([`Gpu::time`]).
    fn time(&mut self, work: GpuWork, calls: usize) -> Result<Seconds, KernelError>;

    /// The result of `work` and the right result ([`Gpu::check`]).
    fn check(&mut self, work: GpuWork) -> Result<Option<GpuCheck>, KernelError>;

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
    fn facts(&self) -> &GpuFacts {
        self.gpu.facts()
    }

    fn time(&mut self, work: GpuWork, calls: usize) -> Result<Seconds, KernelError> {
        self.gpu.time(work, calls)
    }

    fn check(&mut self, work: GpuWork) -> Result<Option<GpuCheck>, KernelError> {
        self.gpu.check(work)
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
