//! Who that waits may run.

use super::super::batch::{Piece, StepPrices};
use super::super::engine::Reserve;
use super::super::prefix::{find, hold};
use super::super::watch::Watch;
use super::Replica;
use hwprofiles::Missing;

impl<P: StepPrices> Replica<P> {
    /// Admits who waits while there is room.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn admit(&mut self, watch: &mut impl Watch) -> Result<(), Missing> {
        let entered = |pieces: &[Piece]| pieces.iter().map(|piece| piece.new).sum::<u64>();
        loop {
            let before = self.pace.end;
            let Some(place) = self.waiting.first(before) else { return Ok(()) };
            let beside = if self.engine.prefill_first { 0 } else { self.decoding.count };
            let used = beside + entered(&self.pieces);
            let room = self.engine.max_num_batched_tokens.saturating_sub(used);
            // Who does not get all of its prompt in is the last.
            let behind = self.entering.is_some_and(|entering| {
                let sequence = &self.sequences[entering as usize];
                self.pieces.first().is_none_or(|piece| sequence.computed + piece.new < sequence.known())
            });
            if room == 0 || behind || self.running.len() as u64 >= self.engine.max_num_seqs {
                return Ok(());
            }
            let sequence = &self.sequences[place as usize];
            let known = sequence.known();
            let (cached, idle) = find(&self.engine, &self.blocks, sequence);
            let found = (cached * self.engine.block_size)
                .min((known - 1) / self.engine.block_size * self.engine.block_size);
            let found_or_swapped = found.max(sequence.swapped);
            let computed = self.reach(place, cached, found_or_swapped)?;
            let wanted = known - computed;
            let new = match self.engine.chunked_prefill {
                true => wanted.min(room),
                false if wanted <= room || used == 0 => wanted,
                false => return Ok(()),
            };
            let new = self.fit(place, Piece { new, past: computed })?;
            if new == 0 {
                return Ok(());
            }
            let sequence = &self.sequences[place as usize];
            let more = self.engine.blocks(computed + new).saturating_sub(cached);
            let left = (sequence.request.output_tokens - sequence.generated).min(Reserve::MOST);
            let (reserved, expected) = match self.engine.reserve {
                Reserve::Chunk => (computed + new, 0),
                Reserve::Prompt => (known, 0),
                // The last token is sampled, not computed: it needs no room.
                Reserve::Answer => (known + left - 1, self.expected()),
            };
            let reserved = self.engine.blocks(reserved).saturating_sub(cached) + self.engine.blocks(expected);
            if reserved > self.blocks.free() - idle {
                return Ok(());
            }
            let sequence = &mut self.sequences[place as usize];
            self.waiting.pop(before);
            hold(&self.engine, &mut self.blocks, sequence, cached);
            self.blocks.take(more);
            sequence.held = cached + more;
            sequence.computed = computed;
            sequence.cached_tokens += found;
            sequence.scheduled.get_or_insert(self.now);
            self.swap_back(place, cached, watch);
            self.fetch(place, computed - found_or_swapped, watch);
            self.running.push(place);
            self.pieces.push(Piece { new, past: computed });
            self.places.push(place);
            if new < wanted {
                self.entering = Some(place);
                return Ok(());
            }
        }
    }

    /// Tokens beyond their blocks that are expected of those who run: the rest of the prompt that enters, and of answers.
    fn expected(&self) -> u64 {
        let (mut whole, mut likely) = (0, 0);
        for sequence in self.running.iter().map(|&place| &self.sequences[place as usize]) {
            let generated =
                sequence.joined.map_or(sequence.generated, |joined| self.decoding.generated(joined));
            let left = (sequence.request.output_tokens - generated).min(Reserve::MOST);
            match sequence.joined {
                Some(_) => likely += left,
                None => {
                    whole += left + sequence.known().saturating_sub(sequence.held * self.engine.block_size);
                }
            }
        }
        whole + Reserve::expected(likely, self.decoding.steps - self.settled)
    }
}
