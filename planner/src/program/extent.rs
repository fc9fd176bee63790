//! The largest sizes of a run.

use scenarios::{Model, Phase, Workload};

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
    /// The extent of `draft`, which proposes tokens for a model that runs with this extent. Where
    /// all proposed tokens were accepted, a model of its own has not yet seen the last of them; an
    /// MTP module reads all accepted ones again, with the model's hidden states.
    #[must_use]
    pub fn for_draft(self, draft: &Model) -> Self {
        let step_tokens = if draft.wiring.module_behind.is_some() { self.step_tokens } else { 2 };
        Self { step_tokens, ..self }
    }

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
