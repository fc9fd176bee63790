//! What comes from the second level of the prefix cache, and what goes there.
//!
//! A prompt whose prefix the KV cache has up to somewhere has it further on if the second level has the names that follow. They
//! are fetched before the step in which the prompt enters, which they delay, and the prompt enters with what is left: LMCache
//! loads before the forward pass too. They are fetched where that is faster (NeurIPS 2024 workshop, on KV caches in CXL memory):
//! t₀ + bytes ÷ bandwidth and what is left of the prompt against all of it, both taken alone as one step. Of who comes back from the swap space nothing is fetched beside.

use super::super::batch::{Batch, Piece, StepPrices};
use super::super::picos::Picos;
use super::super::prefix::{find, names, publish};
use super::super::watch::Watch;
use super::Replica;
use hwprofiles::Missing;

impl<P: StepPrices> Replica<P> {
    /// Tokens that the sequence in `place` begins with, and need not compute, of which the KV cache has `computed` in `cached`
    /// blocks: as many, or more where it pays to fetch them.
    pub(super) fn reach(&mut self, place: u32, cached: u64, computed: u64) -> Result<u64, Missing> {
        let sequence = &self.sequences[place as usize];
        let Some(second) = self.second.as_ref().filter(|_| sequence.swapped == 0) else {
            return Ok(computed);
        };
        let (size, known) = (self.engine.block_size, sequence.known());
        let names = names(&self.engine, &sequence.request);
        let found = names.len().min((cached * size / self.engine.prefix_tokens) as usize);
        let row = found + second.row(&names[found..], self.now);
        // The last token is computed in any case: its logits are wanted.
        let reach = (row as u64 * self.engine.prefix_tokens).min((known - 1) / size * size);
        if reach <= computed {
            return Ok(computed);
        }
        let space = second.space;
        let mut alone = |past: u64| {
            let rest = [Piece { new: known - past, past }];
            self.prices.step(&Batch { pieces: &rest, decodes: 0, decode_tokens: 0, sampled: 1 })
        };
        let pays = !space.only_if_faster
            || space.back.of((reach - computed) / size) + alone(reach)? < alone(computed)?;
        Ok(if pays { reach } else { computed })
    }

    /// The sequence in `place` is admitted, and so many tokens of it are fetched.
    pub(super) fn fetch(&mut self, place: u32, tokens: u64, watch: &mut impl Watch) {
        let Some(second) = &mut self.second else { return };
        let sequence = &mut self.sequences[place as usize];
        second.touch(names(&self.engine, &sequence.request));
        if let blocks @ 1.. = tokens / self.engine.block_size {
            sequence.fetched_tokens += tokens;
            self.moving += second.space.back.of(blocks);
            watch.fetched(blocks);
        }
    }

    /// Names the prefixes that the sequence in `place` has computed, and writes them to the second level.
    pub(super) fn publish(&mut self, place: u32, watch: &mut impl Watch) {
        let sequence = &mut self.sequences[place as usize];
        let (before, now) = (sequence.named, self.now);
        publish(&self.engine, &mut self.blocks, sequence);
        let Some(second) = &mut self.second else { return };
        let names = &sequence.request.prefix[..sequence.named];
        for &name in &names[before..] {
            if let (stored @ 1.., evicted) = second.store(name, now) {
                watch.stored(stored, evicted);
            }
        }
        if before < names.len() {
            second.touch(names);
        }
    }

    /// Blocks that the second level has.
    pub fn stored_blocks(&self) -> u64 {
        self.second.as_ref().map_or(0, |second| second.blocks())
    }

    /// Whether something else may be found later, of who waits, without a step that computes it: more, once it is written; or
    /// less, where what is found is in free blocks. What would be fetched behind it is then none of its either, and a
    /// shorter beginning with as much behind it may have room.
    pub(super) fn may_find_otherwise(&self, now: Picos) -> bool {
        let (Some(second), Some(place)) = (&self.second, self.waiting.first(self.pace.end)) else {
            return false;
        };
        second.writes(now) || find(&self.engine, &self.blocks, &self.sequences[place as usize]).1 > 0
    }
}
