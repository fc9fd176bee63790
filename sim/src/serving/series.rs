//! What happened when: sums over equal stretches of time.

use super::picos::Picos;
use super::watch::{Steps, Watch};

/// More stretches are not kept: they become twice as long instead.
const MOST: usize = 1 << 16;

/// What engines did in one stretch of time. A step that lies in several is in each by its share of time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stretch {
    /// Steps.
    pub steps: f64,
    /// Seconds in which a step ran, of all engines together.
    pub busy: f64,
    /// Seconds that sequences were in steps, all together.
    pub running: f64,
    /// Seconds that sequences waited while steps ran, all together.
    pub waiting: f64,
    /// Tokens of prompts that entered.
    pub prompt_tokens: f64,
    /// Tokens that were sampled.
    pub output_tokens: f64,
    /// The fewest KV blocks of an engine that were free at the end of a step; `None` where there was no step.
    pub least_free_blocks: Option<u64>,
}

impl Stretch {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.busy += other.busy;
        self.running += other.running;
        self.waiting += other.waiting;
        self.prompt_tokens += other.prompt_tokens;
        self.output_tokens += other.output_tokens;
        let least = [self.least_free_blocks, other.least_free_blocks];
        self.least_free_blocks = least.into_iter().flatten().min();
    }

    fn scaled(&self, by: f64) -> Self {
        Self {
            steps: self.steps * by,
            busy: self.busy * by,
            running: self.running * by,
            waiting: self.waiting * by,
            prompt_tokens: self.prompt_tokens * by,
            output_tokens: self.output_tokens * by,
            least_free_blocks: self.least_free_blocks,
        }
    }
}

/// The stretches from time zero on.
#[derive(Debug, Clone)]
pub struct Series {
    every: Picos,
    stretches: Vec<Stretch>,
}

impl Series {
    /// No stretch yet, each `every` long (at least a picosecond).
    pub fn new(every: Picos) -> Self {
        Self { every: every.max(Picos(1)), stretches: Vec::new() }
    }

    /// How long each is: as asked for, or so many times twice that there are few enough.
    pub fn every(&self) -> Picos {
        self.every
    }

    /// They.
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Joins what another engine did, in stretches that began as long as these.
    pub fn join(&mut self, mut other: Self) {
        while other.every < self.every {
            other.coarsen();
        }
        while self.every < other.every {
            self.coarsen();
        }
        debug_assert_eq!(self.every, other.every, "both began alike");
        self.stretches.resize(self.stretches.len().max(other.stretches.len()), Stretch::default());
        self.stretches.iter_mut().zip(&other.stretches).for_each(|(ours, theirs)| ours.add(theirs));
    }

    fn coarsen(&mut self) {
        self.every = Picos(self.every.0.saturating_mul(2));
        for index in 0..self.stretches.len().div_ceil(2) {
            let mut both = self.stretches[2 * index];
            if let Some(second) = self.stretches.get(2 * index + 1) {
                both.add(second);
            }
            self.stretches[index] = both;
        }
        self.stretches.truncate(self.stretches.len().div_ceil(2));
    }
}

impl Watch for Series {
    fn steps(&mut self, steps: &Steps<'_>) {
        let (begin, end) = (steps.begin.0, steps.end.0.max(steps.begin.0 + 1));
        while (end - 1) / self.every.0 >= MOST as u64 {
            self.coarsen();
        }
        let last = ((end - 1) / self.every.0) as usize;
        self.stretches.resize(self.stretches.len().max(last + 1), Stretch::default());
        let (batch, count) = (&steps.batch, steps.count as f64);
        let sequences = batch.decodes + batch.pieces.len() as u64;
        let entered: u64 = batch.pieces.iter().map(|piece| piece.new).sum();
        let busy = (steps.end - steps.begin).to_seconds().get();
        let all = Stretch {
            steps: count,
            busy,
            running: busy * sequences as f64,
            waiting: busy * steps.waiting as f64,
            prompt_tokens: count * entered as f64,
            output_tokens: count * batch.sampled as f64,
            least_free_blocks: Some(steps.free_blocks),
        };
        for index in (begin / self.every.0) as usize..=last {
            let from = (index as u64 * self.every.0).max(begin);
            let to = (index as u64 + 1).saturating_mul(self.every.0).min(end);
            self.stretches[index].add(&all.scaled((to - from) as f64 / (end - begin) as f64));
        }
    }
}
