//! What is changed about a replica while it works, and what it has seen so far.

use super::Replica;
use crate::serving::batch::StepPrices;
use crate::serving::picos::Picos;
use crate::serving::request::{Request, Served};
use crate::serving::watch::Watch;
use hwprofiles::Missing;
use std::iter::Sum;

/// Requests that came, and answers that were given, since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests that were taken.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Requests that were answered.
    pub answers: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
}

impl Seen {
    pub(super) fn came(&mut self, request: &Request) {
        self.requests += 1;
        self.prompt_tokens += request.prompt_tokens;
    }

    pub(super) fn answered(&mut self, served: &Served) {
        self.answers += 1;
        self.output_tokens += served.output_tokens;
    }
}

impl Sum for Seen {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            requests: sum.requests + one.requests,
            prompt_tokens: sum.prompt_tokens + one.prompt_tokens,
            answers: sum.answers + one.answers,
            output_tokens: sum.output_tokens + one.output_tokens,
        })
    }
}

impl<P: StepPrices> Replica<P> {
    /// What came and what was answered so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// What says how long its steps take.
    pub fn prices_mut(&mut self) -> &mut P {
        &mut self.prices
    }

    /// Tokens for which blocks of its KV cache are held.
    pub fn held_tokens(&self) -> u64 {
        (self.engine.num_blocks + self.lacking - self.blocks.free()) * self.engine.block_size
    }

    /// It stands still for `time` from `at` on, or from the end of the step that it makes then.
    pub fn hold(&mut self, at: Picos, time: Picos) {
        self.now = self.now.max(at) + time;
    }

    /// From its next step on its KV cache has so many blocks. Where more are held, who came last is sent back until they
    /// fit; who waits or runs and could never fit again keeps the cache as large as it needs.
    pub fn resize(&mut self, num_blocks: u64) {
        let present =
            self.sequences.iter().enumerate().filter(|(place, _)| !self.vacant.contains(&(*place as u32)));
        let needed = present.map(|(_, sequence)| {
            let request = &sequence.request;
            self.engine.blocks(request.prompt_tokens + request.output_tokens - 1)
        });
        let target = num_blocks.max(needed.max().unwrap_or(0));
        let there = self.engine.num_blocks + self.lacking;
        self.blocks.add(target.saturating_sub(there));
        self.lacking = there.saturating_sub(target);
        self.engine.num_blocks = target;
    }

    /// Takes the blocks away that it has no more.
    pub(super) fn shrink(&mut self, watch: &mut impl Watch) -> Result<(), Missing> {
        while self.blocks.free() < self.lacking {
            self.send_back(watch)?;
        }
        self.blocks.take(std::mem::take(&mut self.lacking));
        Ok(())
    }
}
