//! The samples of one kind of work.

use crate::gpu::device::GpuUnderTest;
use crate::method::options::Warning;
use crate::method::sample_summary::{SampleSummary, summary};
use hwprofiles::{AttentionShape, DType, Direction, HostMemory, Phase};
use kernels::cuda::GpuWork;

/// Duration of one sample's calls, in seconds. The GPU's clock ticks every half microsecond, and a
/// graph takes a few microseconds to start.
const SAMPLE: f64 = 1e-3;
/// The most calls of one sample. A graph with more nodes takes longer to record than to run, and a
/// queue with more launches makes the host wait.
const CALLS: usize = 512;
/// Samples of one visit.
const SAMPLES: usize = 5;
/// Samples of one visit where each takes longer than [`LONG`].
const FEW: usize = 3;
/// A long sample, in seconds.
const LONG: f64 = 0.02;

/// The kind of work of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableKind {
    /// Empty kernels.
    Launches,
    /// Reads of the GPU's memory.
    Reads,
    /// Copies within the GPU's memory.
    Copies,
    /// Transfers in one direction, with one kind of host memory.
    Transfers(Direction, HostMemory),
    /// Small kernels of one token.
    SmallKernels,
    /// Attention of one phase, in one grouping of heads.
    Attention(Phase),
    /// Products of one format.
    Products(DType),
    /// Products by packed weights of one format.
    PackedProducts(DType),
    /// Launches of a layer's kernels.
    LayerCalls,
    /// A mixture of experts.
    Mixtures,
}

/// All points of one kind.
#[derive(Debug)]
pub(super) struct WorkTable {
    pub kind: TableKind,
    name: String,
    /// Whether the GPU counts as absent without this table.
    pub essential: bool,
    points: Vec<Point>,
    checked: bool,
    /// Why the table is left out: its kernel computes something wrong.
    wrong: Option<String>,
    /// The number of refused points, and the reason for the first.
    refused: (usize, String),
}

#[derive(Debug)]
struct Point {
    work: GpuWork,
    /// Calls of one sample; `None` before the first visit.
    calls: Option<usize>,
    refused: bool,
    /// Times of one call, in seconds.
    seconds: Vec<f64>,
}

/// The outcome of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VisitOutcome {
    /// The point has more samples.
    Sampled,
    /// The GPU cannot do this point or computes it wrong, and the point is left out.
    Refused,
    /// The GPU cannot do an essential point, and why.
    Failed(String),
}

impl WorkTable {
    pub fn new(kind: TableKind, works: Vec<GpuWork>) -> Self {
        let name = match kind {
            TableKind::Launches => "launches on the GPU".to_owned(),
            TableKind::Reads => "reads of GPU memory".to_owned(),
            TableKind::Copies => "copies of GPU memory".to_owned(),
            TableKind::Transfers(_, HostMemory::Pageable) => "pageable transfers".to_owned(),
            TableKind::Transfers(_, HostMemory::Pinned) => "pinned transfers".to_owned(),
            TableKind::SmallKernels => "small kernels on the GPU".to_owned(),
            TableKind::Attention(phase) => match works.first() {
                Some(GpuWork::Attention(AttentionShape { heads, kv_heads, head_dim, .. })) => {
                    format!("{phase} attention of {heads} heads of {head_dim} over {kv_heads} on the GPU")
                }
                _ => format!("{phase} attention on the GPU"),
            },
            TableKind::Products(dtype) => format!("matrix products in {dtype} on the GPU"),
            TableKind::PackedProducts(dtype) => {
                format!("matrix products by packed weights in {dtype} on the GPU")
            }
            TableKind::LayerCalls => "launches of a layer's kernels on the GPU".to_owned(),
            TableKind::Mixtures => "mixtures of experts on the GPU".to_owned(),
        };
        let essential = matches!(
            kind,
            TableKind::Launches | TableKind::Reads | TableKind::Copies | TableKind::Transfers(..)
        );
        let point = |work| Point { work, calls: None, refused: false, seconds: Vec::new() };
        Self {
            kind,
            name,
            essential,
            points: works.into_iter().map(point).collect(),
            checked: false,
            wrong: None,
            refused: (0, String::new()),
        }
    }

    /// Its name, for progress: "matrix products in bf16 on the GPU".
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The work of each point.
    pub fn works(&self) -> impl Iterator<Item = GpuWork> {
        self.points.iter().map(|point| point.work)
    }

    /// GpuWork and summary of each point that has samples.
    pub fn summaries(&self) -> impl Iterator<Item = (GpuWork, SampleSummary)> {
        self.points.iter().filter_map(|point| Some((point.work, summary(&point.seconds)?)))
    }

    /// Samples one point. The first visit to the table checks the result of its kind of work; a
    /// table with a wrong result has no points.
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

    /// What is wrong with the result of `work`.
    fn check(&self, work: GpuWork, device: &mut dyn GpuUnderTest) -> Option<String> {
        match device.check(work) {
            // Comparisons with NaN are false, so a NaN counts as wrong.
            Ok(Some(check)) if (check.got - check.wanted).abs() <= check.tolerance => None,
            Ok(None) => None,
            Ok(Some(check)) => Some(format!(
                "{} computed {}, but {} is right: this is a defect of Fulcrum or of the machine",
                self.name, check.got, check.wanted
            )),
            Err(error) => Some(error.to_string()),
        }
    }

    /// A warning about missing points.
    pub fn warning(&self) -> Option<Warning> {
        let (count, reason) = &self.refused;
        let message = format!("{count} of {} points are left out: {reason}", self.points.len());
        (*count > 0).then(|| Warning { subject: self.name.clone(), message })
    }
}

impl Point {
    fn sample(&mut self, device: &mut dyn GpuUnderTest) -> Result<(), kernels::KernelError> {
        let calls = match self.calls {
            Some(calls) => calls,
            None => *self.calls.insert(calls_per_sample(self.work, device)?),
        };
        // Clocks and caches settle to this work.
        let warm = device.time(self.work, calls)?.get() * calls as f64;
        for _ in 0..if warm > LONG { FEW } else { SAMPLES } {
            self.seconds.push(device.time(self.work, calls)?.get());
        }
        Ok(())
    }
}

fn calls_per_sample(work: GpuWork, device: &mut dyn GpuUnderTest) -> Result<usize, kernels::KernelError> {
    // The first call prepares. The second tells roughly how long a call takes, and a sample of that
    // many calls tells it more precisely.
    device.time(work, 1)?;
    let roughly = calls(device.time(work, 1)?.get());
    Ok(if roughly == 1 { 1 } else { calls(device.time(work, roughly)?.get()) })
}

/// Calls of one sample, where one call takes `seconds`.
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
