//! The largest sizes of a run.

use scenarios::{Phase, Workload};

/// The largest sizes of a run, for which memory is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunExtent {
    /// Number of sequences.
    pub batch: u64,
    /// Tokens of a sequence at its end: prompt and output.
    pub context: u64,
    /// Tokens per sequence in one prefill step.
    pub chunk: u64,
    /// Tokens per sequence in one decode step: one, or with a draft the proposed tokens and one
    /// more.
    pub step_tokens: u64,
}

impl RunExtent {
    /// The most tokens per sequence in one decode step of a draft: where all of its proposed tokens
    /// were accepted, it has not yet seen the last of them.
    pub const DRAFT_STEP_TOKENS: u64 = 2;

    /// The sizes of `workload` with `chunk` tokens per sequence in a prefill step.
    pub fn from_workload(workload: &Workload, chunk: u64) -> Self {
        let (context, step_tokens) = (workload.context(), workload.step_tokens());
        Self { batch: workload.batch, context, chunk, step_tokens }
    }

    /// Rows of a step's activations.
    pub(crate) fn rows(&self, phase: Phase) -> u64 {
        match phase {
            // At least the rows of decode, so that a device which computes both phases needs the
            // rows of prefill.
            Phase::Prefill => self.batch * self.chunk.max(self.step_tokens),
            Phase::Decode => self.batch * self.step_tokens,
        }
    }

    /// Rows of the logits.
    pub(crate) fn sampled(&self) -> u64 {
        self.rows(Phase::Decode)
    }
}
