//! How a step goes through the stages of a group of GPUs.

use hwprofiles::Device;
use scenarios::{ExpertTraffic, Phase, Step};

/// A step in micro-batches of equal size, one behind the other in the stages of a device.
///
/// A micro-batch takes a time T through all stages, so T ÷ S through each of S. M micro-batches are
/// in flight, at most one in each stage. In decode a sequence's next step begins when the last one
/// is through, whatever the others do: a step takes T. A prefill begins with empty stages and ends
/// with empty ones: it takes T · (M + S − 1) ÷ S (Huang et al., "GPipe", 2019). Without stages M
/// and S are 1, and the step is its only micro-batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageFlow {
    /// The largest micro-batch.
    pub micro_batch: Step,
    /// M, how many there are.
    pub in_flight: u64,
    /// By how much the step takes longer than a micro-batch.
    pub filling: f64,
    stages: u64,
}

impl StageFlow {
    /// The flow of `step` through `device`.
    pub fn new(device: &Device, step: &Step) -> Self {
        let (stages, in_flight) =
            device.ranks.as_ref().map_or((1, 1), |ranks| (ranks.stages, ranks.micro_batches(step.batch)));
        let filling = match step.phase {
            Phase::Prefill => (in_flight + stages - 1) as f64 / stages as f64,
            Phase::Decode => 1.0,
        };
        let micro_batch = Step { batch: step.batch.div_ceil(in_flight), ..*step };
        Self { micro_batch, in_flight, filling, stages }
    }

    /// The traffic of a micro-batch where that of the step is known.
    pub fn traffic(&self, traffic: Option<ExpertTraffic>) -> Option<ExpertTraffic> {
        traffic.map(|all| ExpertTraffic { pairs: all.pairs / self.in_flight as f64, ..all })
    }

    /// The stages for each micro-batch in flight. The bandwidth of the group's memory is that of
    /// all stages, and a micro-batch has that of one.
    pub fn idle_stages(&self) -> f64 {
        self.stages as f64 / self.in_flight as f64
    }
}
