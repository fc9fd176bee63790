//! Blocks for those who run, and what becomes of those for whom there are none.
//!
//! The last admitted is sent back and its blocks are freed. What was in them is computed again, as far as it is not found
//! again; or it was copied to the swap space before, as vLLM's version 0 did, from where it comes back when the sequence is
//! admitted again, beside what is found. Both ways delay the step that they are before. A sequence of which there is all but
//! the last token then enters with one.

use super::super::batch::{Batch, Piece, StepPrices};
use super::super::prefix::release;
use super::super::watch::Watch;
use super::Replica;
use hwprofiles::Missing;

impl<P: StepPrices> Replica<P> {
    /// Blocks for everybody who decodes; whether somebody was sent back for that.
    pub(super) fn grow(&mut self, watch: &mut impl Watch) -> Result<bool, Missing> {
        let mut preempted = false;
        while self.decoding.growth() > self.blocks.free() {
            self.send_back(watch)?;
            preempted = true;
        }
        self.blocks.take(self.decoding.growth());
        Ok(preempted)
    }

    /// More of the prompt that is not all there; whether its sequence was sent back for want of blocks.
    pub(super) fn go_on(&mut self, watch: &mut impl Watch) -> Result<bool, Missing> {
        let Some(place) = self.entering else { return Ok(false) };
        let sequence = &self.sequences[place as usize];
        let beside = if self.engine.prefill_first { 0 } else { self.decoding.count };
        let room = self.engine.max_num_batched_tokens - beside;
        let (wanted, past) = (sequence.known() - sequence.computed, sequence.computed);
        let new = self.fit(place, Piece { new: wanted.min(room), past })?;
        let sequence = &mut self.sequences[place as usize];
        let more = self.engine.blocks(sequence.computed + new).saturating_sub(sequence.held);
        if more > self.blocks.free() {
            self.send_back(watch)?;
            return Ok(true);
        }
        self.blocks.take(more);
        sequence.held += more;
        if new > 0 {
            self.pieces.push(Piece { new, past: sequence.computed });
            self.places.push(place);
        }
        Ok(false)
    }

    /// Sends the last admitted sequence back to the queue.
    pub(super) fn send_back(&mut self, watch: &mut impl Watch) -> Result<(), Missing> {
        let place = self.running.pop().expect("who needs blocks runs");
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
        self.waiting.push_back_to_front(place, sequence);
        watch.preempted();
        self.swap_out(place, tokens, watch)
    }

    /// Moves the KV cache of so many tokens of who was sent back to the swap space, where there is room and that is wanted.
    fn swap_out(&mut self, place: u32, tokens: u64, watch: &mut impl Watch) -> Result<(), Missing> {
        let blocks = self.engine.blocks(tokens);
        let Some(swap) = self.engine.swap.filter(|_| 0 < blocks && blocks <= self.swap_free) else {
            return Ok(());
        };
        if swap.only_if_faster {
            let again = [Piece { new: tokens, past: 0 }];
            let again = Batch { pieces: &again, decodes: 0, decode_tokens: 0, sampled: 0 };
            if self.prices.step(&again)? <= swap.out.of(blocks) + swap.back.of(blocks) {
                return Ok(());
            }
        }
        self.swap_free -= blocks;
        self.sequences[place as usize].swapped = tokens;
        self.moving += swap.out.of(blocks);
        watch.swapped(blocks, 0);
        Ok(())
    }

    /// Fetches what of a sequence lies in the swap space and is not in the first `found` blocks that were found.
    pub(super) fn swap_back(&mut self, place: u32, found: u64, watch: &mut impl Watch) {
        let tokens = std::mem::take(&mut self.sequences[place as usize].swapped);
        let Some(swap) = self.engine.swap.filter(|_| tokens > 0) else { return };
        let blocks = self.engine.blocks(tokens);
        self.swap_free += blocks;
        if let moved @ 1.. = blocks.saturating_sub(found) {
            self.moving += swap.back.of(moved);
            watch.swapped(0, moved);
        }
    }
}
