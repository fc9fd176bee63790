//! How long a step may become with the SLO policy.

use crate::clock::SimTime;

/// The limits on a step's end: see `replica/slo.rs`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepBudget {
    /// When the step would end with what has entered so far.
    pub end: SimTime,
    /// When the next token of a decode that counts is due, at the earliest.
    pub due: Option<SimTime>,
    /// When the first token of a prompt that enters with this step is due, at the earliest.
    pub promised: Option<SimTime>,
    /// The part of a time per output token that a step of decodes alone leaves.
    pub spare: SimTime,
    /// The delay that an answer of the mean length can make up for.
    pub stake: SimTime,
}

impl StepBudget {
    /// The earliest of both limits.
    pub fn limit(&self) -> Option<SimTime> {
        self.due.into_iter().chain(self.promised).min()
    }
}

/// Whether `end` keeps a limit, if there is one.
pub(crate) fn keeps(limit: Option<SimTime>, end: SimTime) -> bool {
    limit.is_none_or(|limit| end <= limit)
}
