//! Transfers between the KV cache and the second level of the prefix cache.
//!
//! The KV cache may have a prompt's prefix up to some name, and the second level the names that
//! follow. These names are fetched before the step in which the prompt enters. They delay that
//! step, and the prompt enters with the rest of its tokens. (LMCache loads before the forward pass
//! too.) They are fetched if that is faster: latency + bytes ÷ bandwidth and a step with the rest
//! of the prompt against a step with all of it, each taken alone (NeurIPS 2024 workshop, on KV
//! caches in CXL memory). Nothing is fetched for a sequence that comes back from the swap space.

use super::Replica;
use crate::clock::SimTime;
use crate::serving::engine::observer::EngineObserver;
use crate::serving::prices::batch::{Batch, PrefillChunk, StepPrices};
use crate::serving::schedule::prefix::{find, leaves_a_token, prompt_names, publish};
use hwprofiles::MissingRate;

impl<P: StepPrices> Replica<P> {
    /// The number of first tokens of the sequence in `place` that need not be computed. The KV
    /// cache has `cached` of them, and `computed` are there with those in the swap space. The
    /// result is larger than that if fetching pays.
    pub(super) fn tokens_with_fetch(
        &mut self,
        place: u32,
        cached: u64,
        computed: u64,
    ) -> Result<u64, MissingRate> {
        let sequence = &self.sequences[place as usize];
        let Some(second) = self.second.as_ref().filter(|_| sequence.swapped == 0) else {
            return Ok(computed);
        };
        let (size, known) = (self.engine.block_size, sequence.known());
        let names = prompt_names(&self.engine, &sequence.request);
        let found = names.len().min((cached / self.engine.prefix_tokens) as usize);
        let mut reached = found + second.fetchable(&names[found..], self.now);
        // A sequence with a state goes on only where one was kept.
        while self.engine.sequence.has_state()
            && reached > found
            && !(self.engine.keeps_state(reached, names.len())
                && leaves_a_token(&self.engine, &sequence.request, reached))
        {
            reached -= 1;
        }
        // The last token is always computed, because its logits are needed.
        let tokens = (reached as u64 * self.engine.prefix_tokens).min((known - 1) / size * size);
        if tokens <= computed {
            return Ok(computed);
        }
        let space = second.space;
        let fetching = space.back.time(self.engine.copied_blocks(tokens - computed));
        let mut rest_alone = |past: u64| {
            let rest = [PrefillChunk { new: known - past, past }];
            self.prices.step(&Batch { chunks: &rest, decodes: 0, decode_tokens: 0, sampled: 1 })
        };
        let pays = !space.only_if_faster || fetching + rest_alone(tokens)? < rest_alone(computed)?;
        Ok(if pays { tokens } else { computed })
    }

    /// Fetches `tokens` tokens of the admitted sequence in `place`.
    pub(super) fn fetch(&mut self, place: u32, tokens: u64, observer: &mut impl EngineObserver) {
        let Some(second) = &mut self.second else { return };
        let sequence = &mut self.sequences[place as usize];
        second.touch(prompt_names(&self.engine, &sequence.request));
        if tokens > 0 {
            let blocks = self.engine.copied_blocks(tokens);
            sequence.fetched_tokens += tokens;
            self.moving += second.space.back.time(blocks);
            observer.fetched(blocks);
        }
    }

    /// Publishes the prefixes that the sequence in `place` has computed, and writes them to the
    /// second level.
    pub(super) fn publish(&mut self, place: u32, observer: &mut impl EngineObserver) {
        let sequence = &mut self.sequences[place as usize];
        let (before, now) = (sequence.named, self.now);
        publish(&self.engine, &mut self.blocks, sequence);
        let Some(second) = &mut self.second else { return };
        let names = &sequence.request.prefix[..sequence.named];
        for &name in &names[before..] {
            if let (stored @ 1.., evicted) = second.store(name, now) {
                observer.stored(stored, evicted);
            }
        }
        if before < names.len() {
            second.touch(names);
        }
    }

    /// Blocks in the second level.
    pub fn stored_blocks(&self) -> u64 {
        self.second.as_ref().map_or(0, |second| second.blocks())
    }

    /// Whether the next sequence may find something else later, without a step that computes it. It
    /// may find more when a write is done. It may find less if the found blocks are free: then it
    /// no longer fetches the names behind them, and with a shorter beginning it may have room.
    pub(super) fn may_find_otherwise(&self, now: SimTime) -> bool {
        let (Some(second), Some(place)) = (&self.second, self.waiting.first(self.budget.end)) else {
            return false;
        };
        second.is_writing(now) || find(&self.engine, &self.blocks, &self.sequences[place as usize]).idle > 0
    }
}
