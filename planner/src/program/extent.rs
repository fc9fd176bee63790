//! The largest sizes that a run reaches.

use scenarios::{Phase, Workload};

/// The largest sizes that a run reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunExtent {
    /// Sequences.
    pub batch: u64,
    /// Tokens of a sequence at its end: prompt and output.
    pub context: u64,
    /// Tokens per sequence that enter in one prefill step.
    pub chunk: u64,
    /// Tokens per sequence that go through one decode step: one, or what a draft proposed and one more.
    pub step_tokens: u64,
}

impl RunExtent {
    /// That of `workload`, with so many tokens per sequence in a prefill step.
    pub fn from_workload(workload: &Workload, chunk: u64) -> Self {
        let (context, step_tokens) = (workload.context(), workload.step_tokens());
        Self { batch: workload.batch, context, chunk, step_tokens }
    }

    /// Rows of a step's activations.
    pub(crate) fn rows(&self, phase: Phase) -> u64 {
        match phase {
            // No less than decode's, so that a device's rows are those of the phases that it computes in.
            Phase::Prefill => self.batch * self.chunk.max(self.step_tokens),
            Phase::Decode => self.batch * self.step_tokens,
        }
    }

    /// Rows of the logits.
    pub(crate) fn sampled(&self) -> u64 {
        self.rows(Phase::Decode)
    }
}
