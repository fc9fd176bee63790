//! The observer of an engine at work.

use crate::clock::SimTime;
use crate::serving::engine::request::{RejectReason, Request, ServedRequest};
use crate::serving::prices::batch::Batch;
use crate::serving::prices::step_line::StepLine;

/// Steps that an engine made: one step, or a series of steps of the same sequences.
#[derive(Debug, Clone, Copy)]
pub struct ObservedSteps<'a> {
    /// When the first step began.
    pub begin: SimTime,
    /// When the last step ended.
    pub end: SimTime,
    /// The part of that time that the host took between steps.
    pub host: SimTime,
    /// The number of steps.
    pub count: u64,
    /// The batch of the first step. In each further step, every sequence has one more token.
    pub batch: Batch<'a>,
    /// Blocks that were free at the end.
    pub free_blocks: u64,
    /// The plan that the engine followed: see [`crate::serving::StepPrices::price_set`].
    pub price_set: usize,
    /// Sequences that waited meanwhile.
    pub waiting: usize,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestOutcome {
    /// It was answered.
    Served(ServedRequest),
    /// It was not taken.
    Rejected(Request, RejectReason),
}

/// Observes everything that happens between a request's arrival and its last token.
pub trait EngineObserver {
    /// Steps were made.
    fn steps(&mut self, _steps: &ObservedSteps<'_>) {}

    /// `times` tokens came `gap` after the token before them.
    fn gaps(&mut self, _gap: SimTime, _times: u64) {}

    /// A running sequence was sent back to the queue.
    fn preempted(&mut self) {}

    /// `out` KV blocks went to the swap space, and `back` blocks came from there.
    fn swapped(&mut self, _out: u64, _back: u64) {}

    /// `blocks` KV blocks were written to the second level of the prefix cache, over `evicted`
    /// others.
    fn stored(&mut self, _blocks: u64, _evicted: u64) {}

    /// `blocks` KV blocks were fetched from the second level.
    fn fetched(&mut self, _blocks: u64) {}

    /// A request ended.
    fn end(&mut self, _end: &RequestOutcome) {}
}

impl EngineObserver for () {}

/// Gaps within this share of each other are reported as one, in the middle between them.
const GAP_TOLERANCE: f64 = 5e-4;

/// Reports the gaps of a series of decode steps along `line` to `observer`.
pub(crate) fn notify_gaps(line: &StepLine, steps: &ObservedSteps<'_>, observer: &mut impl EngineObserver) {
    let Batch { decodes, decode_tokens, .. } = steps.batch;
    let at = |step: u64| line.at(decode_tokens + step * decodes);
    let rise = line.per_token.unsigned_abs().saturating_mul(decodes).max(1);
    let mut reported = 0;
    while reported < steps.count {
        let left = steps.count - reported;
        let tolerance = (at(reported).picos() as f64 * GAP_TOLERANCE) as u64;
        // The division is slow, and most series are similar to their end.
        let count = match rise.saturating_mul(left - 1) <= tolerance {
            true => left,
            false => left.min(tolerance / rise + 1),
        };
        observer.gaps(at(reported + (count - 1) / 2), count * decodes);
        reported += count;
    }
}
