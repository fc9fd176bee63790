//! The samples of one kind of work.

use crate::gpu::device::GpuUnderTest;
use crate::method::options::Warning;
use crate::method::statistics::{SampleSummary, summary};
use hwprofiles::{DType, Direction, HostMemory};
use kernels::cuda::Work;

/// How long the calls of one sample take together, in seconds. The GPU's clock ticks every half microsecond, and a
/// graph takes a few to start.
const SAMPLE: f64 = 1e-3;
/// The most calls of one sample: a graph of more nodes takes longer to record than to run, and a queue of more
/// launches makes the host wait.
const CALLS: usize = 512;
/// Samples of one visit.
const SAMPLES: usize = 5;
/// Samples of one visit where each takes longer than [`LONG`].
const FEW: usize = 3;
/// A long sample, in seconds.
const LONG: f64 = 0.02;

/// What a table's works have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableKind {
    /// Empty kernels.
    Launches,
    /// Reads of the GPU's memory.
    Reads,
    /// Copies within it.
    Copies,
    /// Transfers of one kind.
    Transfers(Direction, HostMemory),
    /// Products of one format.
    Products(DType),
}

/// All points of one kind.
#[derive(Debug)]
pub(super) struct WorkTable {
    pub kind: TableKind,
    name: String,
    /// Whether there is no GPU to speak of without it.
    pub essential: bool,
    points: Vec<Point>,
    checked: bool,
    /// Why it is left out: what it computes is wrong.
    wrong: Option<String>,
    /// How many points were refused, and why the first was.
    refused: (usize, String),
}

#[derive(Debug)]
struct Point {
    work: Work,
    /// Calls of one sample; 0 before the first visit.
    calls: usize,
    refused: bool,
    /// Times of one call, in seconds.
    seconds: Vec<f64>,
}

/// What came of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VisitOutcome {
    /// There are more samples.
    Sampled,
    /// The GPU cannot do this point, or computes it wrong, and what is known of it goes without.
    Refused,
    /// The GPU cannot do what it must, and why.
    Failed(String),
}

impl WorkTable {
    pub fn new(kind: TableKind, works: Vec<Work>) -> Self {
        let name = match kind {
            TableKind::Launches => "launches on the GPU".to_owned(),
            TableKind::Reads => "reads of GPU memory".to_owned(),
            TableKind::Copies => "copies of GPU memory".to_owned(),
            TableKind::Transfers(_, HostMemory::Pageable) => "pageable transfers".to_owned(),
            TableKind::Transfers(_, HostMemory::Pinned) => "pinned transfers".to_owned(),
            TableKind::Products(dtype) => format!("matrix products in {dtype} on the GPU"),
        };
        let point = |work| Point { work, calls: 0, refused: false, seconds: Vec::new() };
        Self {
            kind,
            name,
            essential: !matches!(kind, TableKind::Products(_)),
            points: works.into_iter().map(point).collect(),
            checked: false,
            wrong: None,
            refused: (0, String::new()),
        }
    }

    /// What it is, for progress: "matrix products in bf16 on the GPU".
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The work of each point.
    pub fn works(&self) -> impl Iterator<Item = Work> {
        self.points.iter().map(|point| point.work)
    }

    /// Work and summary of each point that has samples.
    pub fn summaries(&self) -> impl Iterator<Item = (Work, SampleSummary)> {
        self.points.iter().filter_map(|point| Some((point.work, summary(&point.seconds)?)))
    }

    /// Samples one point. The first visit to the table checks what its kind of work computes: a table that is wrong has
    /// no points.
    pub fn visit(&mut self, point: usize, device: &mut dyn GpuUnderTest) -> VisitOutcome {
        if !self.checked {
            self.checked = true;
            self.wrong = self.check(self.points[point].work, device);
        }
        let tried = match &self.wrong {
            Some(reason) => Err(reason.clone()),
            None if self.points[point].refused => return VisitOutcome::Refused,
            None => self.points[point].sample(device).map_err(|error| error.to_string()),
        };
        match tried {
            Ok(()) => VisitOutcome::Sampled,
            Err(reason) if self.essential => VisitOutcome::Failed(reason),
            Err(reason) => {
                self.points[point].refused = true;
                if self.refused.0 == 0 {
                    self.refused.1 = reason;
                }
                self.refused.0 += 1;
                VisitOutcome::Refused
            }
        }
    }

    /// What is wrong with what `work` computes.
    fn check(&self, work: Work, device: &mut dyn GpuUnderTest) -> Option<String> {
        match device.check(work) {
            // A comparison with NaN is false: a NaN is wrong.
            Ok(Some(check)) if (check.got - check.wanted).abs() <= check.tolerance => None,
            Ok(None) => None,
            Ok(Some(check)) => Some(format!(
                "{} computed {}, but {} is right: this is a defect of Fulcrum or of the machine",
                self.name, check.got, check.wanted
            )),
            Err(error) => Some(error.to_string()),
        }
    }

    /// What is missing from it.
    pub fn warning(&self) -> Option<Warning> {
        let (count, reason) = &self.refused;
        let message = format!("{count} of {} points are left out: {reason}", self.points.len());
        (*count > 0).then(|| Warning { subject: self.name.clone(), message })
    }
}

impl Point {
    fn sample(&mut self, device: &mut dyn GpuUnderTest) -> Result<(), kernels::Error> {
        if self.calls == 0 {
            // The first call prepares; the second tells roughly how long one is, and a sample of so many how long.
            device.time(self.work, 1)?;
            let roughly = calls(device.time(self.work, 1)?.get());
            self.calls = if roughly == 1 { 1 } else { calls(device.time(self.work, roughly)?.get()) };
        }
        // Whatever was done before, clocks and caches are now as this work makes them.
        let warm = device.time(self.work, self.calls)?.get() * self.calls as f64;
        for _ in 0..if warm > LONG { FEW } else { SAMPLES } {
            self.seconds.push(device.time(self.work, self.calls)?.get());
        }
        Ok(())
    }
}

/// Calls of one sample, where one takes so many seconds.
fn calls(seconds: f64) -> usize {
    ((SAMPLE / seconds.max(1e-9)).ceil() as usize).clamp(1, CALLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_long_enough_and_one_call_at_least() {
        assert_eq!(
            [calls(1.0), calls(1e-3), calls(0.4e-3), calls(1e-5), calls(1e-6), calls(0.0)],
            [1, 1, 3, 100, CALLS, CALLS]
        );
    }
}
