//! Admission of waiting sequences.

use super::Replica;
use crate::serving::engine::Reserve;
use crate::serving::engine::observer::EngineObserver;
use crate::serving::engine::request::Request;
use crate::serving::prices::batch::{PrefillChunk, StepPrices};
use crate::serving::schedule::prefix::{FoundPrefix, find, hold};
use crate::serving::schedule::sequence::Sequence;
use hwprofiles::MissingRate;

/// The most tokens of an answer for which [`Reserve::Answer`] keeps room: SGLang's default of
/// `SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`.
const MOST_RESERVED: u64 = 4096;

/// Tokens that [`Reserve::Answer`] keeps for `left` tokens of running answers, `steps` decode steps
/// after the engine began or last preempted a sequence. At first seven tenths of them are kept.
/// After six hundred steps it is a seventh of that (SGLang's `new_token_ratio`).
fn expected_rest(left: u64, steps: u64) -> u64 {
    const FIRST: f64 = 0.7;
    const LEAST: f64 = 0.14 * FIRST;
    const STEPS: u64 = 600;
    let share = FIRST - (FIRST - LEAST) * steps.min(STEPS) as f64 / STEPS as f64;
    (left as f64 * share).ceil() as u64
}

/// A waiting sequence that may enter the step.
struct Candidate {
    place: u32,
    /// Blocks that the KV cache has of it, the free ones among them, and their tokens.
    cached: u64,
    idle: u64,
    found_tokens: u64,
    /// Tokens that need not be computed, without and with those that are fetched.
    without_fetch: u64,
    computed: u64,
    /// Tokens that are left to compute, and how many of them enter.
    wanted: u64,
    new: u64,
}

impl<P: StepPrices> Replica<P> {
    /// Admits waiting sequences while there is room.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn admit(&mut self, observer: &mut impl EngineObserver) -> Result<(), MissingRate> {
        loop {
            let before = self.budget.end;
            let Some(place) = self.waiting.first(before) else { return Ok(()) };
            let Some(candidate) = self.candidate(place)? else { return Ok(()) };
            if !self.has_blocks_for(&candidate) {
                return Ok(());
            }
            self.waiting.pop(before);
            self.enter_step(&candidate, observer);
            if candidate.new < candidate.wanted {
                self.entering = Some(place);
                return Ok(());
            }
        }
    }

    /// The sequence in `place` with the tokens that may enter the step, if there is room for any.
    fn candidate(&mut self, place: u32) -> Result<Option<Candidate>, MissingRate> {
        let size = self.engine.block_size;
        let beside = if self.engine.prefill_first { 0 } else { self.decoding.count };
        let used = beside + self.chunks.iter().map(|chunk| chunk.new).sum::<u64>();
        let room = self.engine.max_num_batched_tokens.saturating_sub(used);
        // A sequence whose prompt does not fully enter is the last one of the step.
        let behind = self.entering.is_some_and(|entering| {
            let sequence = &self.sequences[entering as usize];
            self.chunks.first().is_none_or(|chunk| sequence.computed + chunk.new < sequence.known())
        });
        if room == 0 || behind || self.running.len() as u64 >= self.engine.max_num_seqs {
            return Ok(None);
        }
        let sequence = &self.sequences[place as usize];
        let known = sequence.known();
        let FoundPrefix { blocks: cached, idle, tokens } = find(&self.engine, &self.blocks, sequence);
        let found_tokens = tokens.min((known - 1) / size * size);
        let brought = if self.engine.prefilled { sequence.brought() } else { 0 };
        let without_fetch = found_tokens.max(sequence.swapped).max(brought);
        let computed = self.tokens_with_fetch(place, tokens, without_fetch)?;
        let wanted = known - computed;
        let new = match self.engine.chunked_prefill {
            true => wanted.min(room),
            false if wanted <= room || used == 0 => wanted,
            false => return Ok(None),
        };
        let new = self.tokens_in_budget(place, PrefillChunk { new, past: computed })?;
        let candidate = Candidate { place, cached, idle, found_tokens, without_fetch, computed, wanted, new };
        Ok((new > 0).then_some(candidate))
    }

    /// Whether the free blocks suffice for what the engine reserves for the candidate.
    fn has_blocks_for(&self, candidate: &Candidate) -> bool {
        let Candidate { cached, idle, computed, new, .. } = *candidate;
        let sequence = &self.sequences[candidate.place as usize];
        let known = sequence.known();
        let left = sequence.request.output_tokens - sequence.generated;
        // The last token is sampled, not computed, so it needs no room.
        let (reserved, beside) = match self.engine.reserve {
            Reserve::Chunk => (computed + new, 0),
            Reserve::Prompt => (known, 0),
            Reserve::Answer => {
                (known + left.min(MOST_RESERVED) - 1, self.engine.growing_blocks(self.expected_tokens()))
            }
            Reserve::WholeAnswer => (known + left - 1, self.promised_blocks()),
        };
        let reserved = self.engine.blocks(reserved).saturating_sub(cached) + beside;
        reserved <= self.blocks.free() - idle
    }

    /// Moves the candidate into the step.
    fn enter_step(&mut self, candidate: &Candidate, observer: &mut impl EngineObserver) {
        let Candidate { place, cached, computed, new, .. } = *candidate;
        let more = self.engine.blocks(computed + new).saturating_sub(cached);
        let sequence = &mut self.sequences[place as usize];
        hold(&self.engine, &mut self.blocks, sequence, cached);
        self.blocks.take(more);
        sequence.held = cached + more;
        sequence.computed = computed;
        sequence.cached_tokens += candidate.found_tokens;
        sequence.scheduled.get_or_insert(self.now);
        self.swap_back(place, cached, observer);
        self.fetch(place, computed - candidate.without_fetch, observer);
        self.running.push(place);
        self.chunks.push(PrefillChunk { new, past: computed });
        self.places.push(place);
    }

    /// Blocks that running sequences need beyond theirs until they end.
    fn promised_blocks(&self) -> u64 {
        let rest = |sequence: &Sequence| {
            let Request { prompt_tokens, output_tokens, .. } = sequence.request;
            let held = match sequence.joined {
                // Its last token has room once the step's decodes have grown.
                Some(joined) => {
                    let stored = prompt_tokens + self.decoding.generated(joined) - 1;
                    self.engine.blocks(stored + u64::from(!self.engine.prefill_first))
                }
                None => sequence.held,
            };
            self.engine.blocks(prompt_tokens + output_tokens - 1).saturating_sub(held)
        };
        self.running.iter().map(|&place| rest(&self.sequences[place as usize])).sum()
    }

    /// Tokens that running sequences are expected to need beyond their blocks: the rest of the
    /// entering prompt, and the rest of their answers.
    fn expected_tokens(&self) -> u64 {
        let (mut whole, mut likely) = (0, 0);
        for sequence in self.running.iter().map(|&place| &self.sequences[place as usize]) {
            let generated =
                sequence.joined.map_or(sequence.generated, |joined| self.decoding.generated(joined));
            let left = (sequence.request.output_tokens - generated).min(MOST_RESERVED);
            match sequence.joined {
                Some(_) => likely += left,
                None => {
                    let has_room = self.engine.tokens_within(sequence.held, sequence.known());
                    whole += left + sequence.known().saturating_sub(has_room);
                }
            }
        }
        whole + expected_rest(likely, self.decoding.steps - self.settled)
    }
}
