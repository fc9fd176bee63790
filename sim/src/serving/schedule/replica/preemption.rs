//! Blocks for running sequences, and preemption if there are too few.
//!
//! The last admitted sequence is sent back to the queue and its blocks are freed. When it is
//! admitted again, tokens that are not found are computed again. With a swap space, the blocks are
//! copied there before, as in vLLM's version 0, and come back beside the found blocks. Copies in
//! both directions delay the step that follows them. A sequence that has all but its last token
//! then enters with one token.

use super::Replica;
use crate::serving::engine::observer::EngineObserver;
use crate::serving::prices::batch::{Batch, PrefillChunk, StepPrices};
use crate::serving::schedule::prefix::release;
use hwprofiles::MissingRate;

impl<P: StepPrices> Replica<P> {
    /// Takes the blocks that all decodes need. Returns whether a sequence was preempted for them.
    pub(super) fn grow_decodes(&mut self, observer: &mut impl EngineObserver) -> Result<bool, MissingRate> {
        let mut preempted = false;
        let mut growth = self.decoding.growth();
        while growth > self.blocks.free() {
            self.preempt_last(observer)?;
            preempted = true;
            growth = self.decoding.growth();
        }
        self.blocks.take(growth);
        Ok(preempted)
    }

    /// Continues the prompt that has not fully entered. Returns whether its sequence was preempted
    /// for want of blocks.
    pub(super) fn continue_prompt(
        &mut self,
        observer: &mut impl EngineObserver,
    ) -> Result<bool, MissingRate> {
        let Some(place) = self.entering else { return Ok(false) };
        let sequence = &self.sequences[place as usize];
        let beside = if self.engine.prefill_first { 0 } else { self.decoding.count };
        let room = self.engine.max_num_batched_tokens - beside;
        let (wanted, past) = (sequence.known() - sequence.computed, sequence.computed);
        let new = self.tokens_in_budget(place, PrefillChunk { new: wanted.min(room), past })?;
        let sequence = &mut self.sequences[place as usize];
        let more = self.engine.blocks(sequence.computed + new).saturating_sub(sequence.held);
        if more > self.blocks.free() {
            self.preempt_last(observer)?;
            return Ok(true);
        }
        self.blocks.take(more);
        sequence.held += more;
        if new > 0 {
            self.chunks.push(PrefillChunk { new, past: sequence.computed });
            self.places.push(place);
        }
        Ok(false)
    }

    /// Sends the last admitted sequence back to the queue.
    pub(super) fn preempt_last(&mut self, observer: &mut impl EngineObserver) -> Result<(), MissingRate> {
        let place = self.running.pop().expect("only running sequences need blocks");
        let sequence = &mut self.sequences[place as usize];
        match sequence.joined {
            Some(_) => {
                self.decoding.leave(sequence);
                sequence.last_token = match self.stalled {
                    true => self.decoded.max(sequence.last_token),
                    false => self.now,
                };
                sequence.life += 1;
            }
            None => self.entering = None,
        }
        let tokens = sequence.computed;
        release(&self.engine, &mut self.blocks, sequence);
        sequence.preemptions += 1;
        self.settled = self.decoding.steps;
        self.waiting.push_preempted(place, sequence);
        observer.preempted();
        self.swap_out(place, tokens, observer)
    }

    /// Moves the KV cache of `tokens` tokens of a preempted sequence to the swap space, if there is
    /// room and it pays.
    fn swap_out(
        &mut self,
        place: u32,
        tokens: u64,
        observer: &mut impl EngineObserver,
    ) -> Result<(), MissingRate> {
        let blocks = self.engine.copied_blocks(tokens);
        let Some(swap) = self.engine.swap.filter(|_| 0 < blocks && blocks <= self.swap_free) else {
            return Ok(());
        };
        if swap.only_if_faster {
            let again = [PrefillChunk { new: tokens, past: 0 }];
            let again = Batch { chunks: &again, decodes: 0, decode_tokens: 0, sampled: 0 };
            if self.prices.step(&again)? <= swap.out.time(blocks) + swap.back.time(blocks) {
                return Ok(());
            }
        }
        self.swap_free -= blocks;
        self.sequences[place as usize].swapped = tokens;
        self.moving += swap.out.time(blocks);
        observer.swapped(blocks, 0);
        Ok(())
    }

    /// Fetches a sequence's blocks from the swap space, except for the first `found` blocks, which
    /// the KV cache has.
    pub(super) fn swap_back(&mut self, place: u32, found: u64, observer: &mut impl EngineObserver) {
        let tokens = std::mem::take(&mut self.sequences[place as usize].swapped);
        let Some(swap) = self.engine.swap.filter(|_| tokens > 0) else { return };
        let blocks = self.engine.copied_blocks(tokens);
        self.swap_free += blocks;
        if let moved @ 1.. = blocks.saturating_sub(found) {
            self.moving += swap.back.time(moved);
            observer.swapped(0, moved);
        }
    }
}
