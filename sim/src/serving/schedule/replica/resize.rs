//! Changes to a replica while it works: another plan, another size of its KV cache, a pause.

use super::Replica;
use crate::clock::SimTime;
use crate::serving::engine::observer::EngineObserver;
use crate::serving::engine::request::RequestTotals;
use crate::serving::prices::batch::StepPrices;
use hwprofiles::MissingRate;

impl<P: StepPrices> Replica<P> {
    /// The requests and answers so far.
    pub fn totals(&self) -> RequestTotals {
        self.totals
    }

    /// The prices of its steps.
    pub fn prices_mut(&mut self) -> &mut P {
        &mut self.prices
    }

    /// Tokens of the blocks that sequences hold in its KV cache.
    pub fn held_tokens(&self) -> u64 {
        let held = self.engine.num_blocks + self.missing_blocks - self.blocks.free();
        if self.engine.sequence.is_plain() {
            return held * self.engine.block_size;
        }
        let all = self.running.iter().map(|&place| &self.sequences[place as usize]);
        let tokens = all.map(|sequence| match sequence.joined {
            Some(joined) => sequence.request.prompt_tokens + self.decoding.generated(joined),
            None => sequence.computed,
        });
        tokens.map(|tokens| tokens.next_multiple_of(self.engine.block_size)).sum()
    }

    /// Sequences, and tokens of each, that keep as many bytes as those in its KV cache. Without
    /// windows and states one sequence is as good as many.
    pub(crate) fn held_sequences(&self) -> [u64; 2] {
        match self.engine.sequence.is_plain() {
            true => [1, self.held_tokens()],
            false => {
                let sequences = (self.running.len() as u64).max(1);
                [sequences, self.held_tokens().div_ceil(sequences)]
            }
        }
    }

    /// Stands still for `time`, from `at` on or from the end of the step that is running then.
    pub fn pause(&mut self, at: SimTime, time: SimTime) {
        self.now = self.now.max(at) + time;
    }

    /// Gives its KV cache `num_blocks` blocks from its next step on. If sequences hold more, the
    /// last admitted ones are preempted until the rest fits. The cache stays large enough for every
    /// request that waits or runs.
    pub fn resize(&mut self, num_blocks: u64) {
        let present =
            self.sequences.iter().enumerate().filter(|(place, _)| !self.vacant.contains(&(*place as u32)));
        let needed = present.map(|(_, sequence)| {
            let request = &sequence.request;
            self.engine.blocks(request.prompt_tokens + request.output_tokens - 1)
        });
        let target = num_blocks.max(needed.max().unwrap_or(0));
        let present_blocks = self.engine.num_blocks + self.missing_blocks;
        self.blocks.add(target.saturating_sub(present_blocks));
        self.missing_blocks = present_blocks.saturating_sub(target);
        self.engine.num_blocks = target;
    }

    /// Takes away the blocks that a resize has removed.
    pub(super) fn shrink(&mut self, observer: &mut impl EngineObserver) -> Result<(), MissingRate> {
        while self.blocks.free() < self.missing_blocks {
            self.preempt_last(observer)?;
        }
        self.blocks.take(std::mem::take(&mut self.missing_blocks));
        Ok(())
    }
}
