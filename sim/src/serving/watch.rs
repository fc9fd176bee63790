//! Who looks on while an engine works.

use super::batch::Batch;
use super::line::Line;
use super::picos::Picos;
use super::source::End;

/// Steps that were made: one, or a series of steps of the same sequences.
#[derive(Debug, Clone, Copy)]
pub struct Steps<'a> {
    /// When the first began.
    pub begin: Picos,
    /// When the last was done.
    pub end: Picos,
    /// Of that time, what the host took between steps.
    pub host: Picos,
    /// How many.
    pub count: u64,
    /// The batch of the first; in each further one, every sequence has a token more.
    pub batch: Batch<'a>,
    /// Blocks that were free in the end.
    pub free_blocks: u64,
    /// Which of several plans the engine followed: see [`super::StepPrices::course`].
    pub course: usize,
    /// Sequences that waited meanwhile.
    pub waiting: usize,
}

/// Is told of everything that happens between a request's coming and its last token.
pub trait Watch {
    /// Steps were made.
    fn steps(&mut self, _steps: &Steps<'_>) {}

    /// So many times, a token came so long after the one before it.
    fn gaps(&mut self, _gap: Picos, _times: u64) {}

    /// A running sequence was sent back to the queue.
    fn preempted(&mut self) {}

    /// So many KV blocks went to the swap space, so many came back.
    fn swapped(&mut self, _out: u64, _back: u64) {}

    /// So many KV blocks were written to the second level of the prefix cache, and so many others overwritten there for that.
    fn stored(&mut self, _blocks: u64, _evicted: u64) {}

    /// So many were fetched from there.
    fn fetched(&mut self, _blocks: u64) {}

    /// A request came to its end.
    fn end(&mut self, _end: &End) {}
}

impl Watch for () {}

/// Gaps within this share of each other are told as one, in the middle between them.
const ALIKE: f64 = 5e-4;

/// Tells `watch` the gaps of a series of decode steps along `line`.
pub(super) fn gaps_of(line: &Line, steps: &Steps<'_>, watch: &mut impl Watch) {
    let Batch { decodes, decode_tokens, .. } = steps.batch;
    let at = |step: u64| line.at(decode_tokens + step * decodes);
    let mut told = 0;
    while told < steps.count {
        let first = at(told);
        let rise = line.per_token.unsigned_abs().saturating_mul(decodes).max(1);
        let alike = (first.0 as f64 * ALIKE) as u64 / rise + 1;
        let count = alike.min(steps.count - told);
        watch.gaps(at(told + (count - 1) / 2), count * decodes);
        told += count;
    }
}
