//! The batch of one step, and the prices of steps.

use crate::clock::SimTime;
use crate::serving::prices::step_line::StepLine;
use hwprofiles::MissingRate;

/// A chunk of one sequence's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrefillChunk {
    /// Tokens that enter.
    pub new: u64,
    /// Tokens of the sequence that are in the KV cache already.
    pub past: u64,
}

/// A step's batch: chunks of prompts, and sequences that decode one token each. Decodes are given
/// as sums, because the time of attention depends on the sum of all contexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Batch<'a> {
    /// The chunks of prompts.
    pub chunks: &'a [PrefillChunk],
    /// Sequences that decode.
    pub decodes: u64,
    /// Tokens that all of these attend to, including the new ones.
    pub decode_tokens: u64,
    /// Sequences that get a token: the decodes, and the prompts that end with a chunk of
    /// this batch.
    pub sampled: u64,
}

impl Batch<'_> {
    /// Tokens that enter the model.
    pub fn tokens(&self) -> u64 {
        self.decodes + self.chunks.iter().map(|chunk| chunk.new).sum::<u64>()
    }

    /// New tokens of one chunk, and the tokens before it, that stands for all chunks. It has as
    /// many new tokens and as many attended pairs of tokens as all of them. Several short prompts
    /// have fewer pairs than one prompt with all their tokens. They are replaced by one shorter
    /// prompt with the same number of pairs.
    pub(crate) fn equivalent_chunk(&self) -> [f64; 2] {
        let new: f64 = self.chunks.iter().map(|chunk| chunk.new as f64).sum();
        let pairs = |new: f64, past: f64| new * past + new * new / 2.0;
        let all: f64 = self.chunks.iter().map(|chunk| pairs(chunk.new as f64, chunk.past as f64)).sum();
        match all >= pairs(new, 0.0) {
            true => [new, (all - pairs(new, 0.0)) / new.max(1.0)],
            false => [(2.0 * all).sqrt(), 0.0],
        }
    }
}

/// A batch that owns its chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OwnedBatch {
    chunks: Vec<PrefillChunk>,
    decodes: u64,
    decode_tokens: u64,
    sampled: u64,
}

impl OwnedBatch {
    pub fn new(batch: &Batch<'_>) -> Self {
        let Batch { chunks, decodes, decode_tokens, sampled } = *batch;
        Self { chunks: chunks.to_vec(), decodes, decode_tokens, sampled }
    }

    pub fn as_batch(&self) -> Batch<'_> {
        let Self { ref chunks, decodes, decode_tokens, sampled } = *self;
        Batch { chunks, decodes, decode_tokens, sampled }
    }
}

impl Batch<'_> {
    /// The parts of at most `most` tokens that are computed one after the other: decodes before
    /// prompts. Of decodes that do not fit in one part, each part has an equal share of the
    /// contexts. Prompts that end give their token in the last part.
    pub(crate) fn parts(&self, most: u64) -> Vec<OwnedBatch> {
        let most = most.max(1);
        let mut parts: Vec<OwnedBatch> = Vec::new();
        let (mut decodes, mut decode_tokens) = (self.decodes, self.decode_tokens);
        let mut chunks = self.chunks.iter();
        let (mut new, mut past) = chunks.next().map_or((0, 0), |chunk| (chunk.new, chunk.past));
        while decodes > 0 || new > 0 {
            let beside = decodes.min(most);
            let tokens = (u128::from(decode_tokens) * u128::from(beside)).checked_div(decodes.into());
            let tokens = tokens.unwrap_or(0) as u64;
            (decodes, decode_tokens) = (decodes - beside, decode_tokens - tokens);
            let mut part =
                OwnedBatch { chunks: vec![], decodes: beside, decode_tokens: tokens, sampled: beside };
            let mut room = most - beside;
            while room > 0 && new > 0 {
                let entering = room.min(new);
                part.chunks.push(PrefillChunk { new: entering, past });
                (room, new, past) = (room - entering, new - entering, past + entering);
                if new == 0 {
                    (new, past) = chunks.next().map_or((0, 0), |chunk| (chunk.new, chunk.past));
                }
            }
            parts.push(part);
        }
        if let Some(last) = parts.last_mut() {
            last.sampled += self.sampled - self.decodes.min(self.sampled);
        }
        parts
    }
}

/// The times of steps on the devices, without the host's overhead.
pub trait StepPrices {
    /// The time of a step of `batch`.
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, MissingRate>;

    /// The times of steps in which `decodes` sequences decode and no prompt enters, over `tokens`
    /// tokens and more: a line that holds at `tokens`.
    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, MissingRate>;

    /// The number of the plan and machine state that these prices belong to, for prices that cover
    /// several.
    fn price_set(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// Parts have at most `most` tokens, all but the last have as many, and together they are
        /// the batch.
        #[test]
        fn parts_make_up_the_batch(
            chunks in prop::collection::vec((1u64..300, 0u64..300), 0..5),
            decodes in 0u64..200, context in 1u64..300, ending in 0u64..5, most in 1u64..200,
        ) {
            let chunks: Vec<_> = chunks.into_iter().map(|(new, past)| PrefillChunk { new, past }).collect();
            let sampled = decodes + ending.min(chunks.len() as u64);
            let batch = Batch { chunks: &chunks, decodes, decode_tokens: decodes * context, sampled };
            let parts = batch.parts(most);
            let sum = |of: fn(&Batch<'_>) -> u64| parts.iter().map(|part| of(&part.as_batch())).sum::<u64>();
            prop_assert_eq!(sum(|part| part.tokens()), batch.tokens());
            prop_assert_eq!(sum(|part| part.decodes), decodes);
            prop_assert_eq!(sum(|part| part.decode_tokens), batch.decode_tokens);
            prop_assert_eq!(sum(|part| part.sampled), sampled);
            // Pairs of new tokens and the tokens that they attend to.
            let pairs = |chunk: &PrefillChunk| chunk.new * (2 * chunk.past + chunk.new);
            let of_parts: u64 = parts.iter().flat_map(|part| &part.chunks).map(pairs).sum();
            prop_assert_eq!(of_parts, chunks.iter().map(pairs).sum::<u64>());
            for (index, part) in parts.iter().enumerate() {
                let tokens = part.as_batch().tokens();
                prop_assert!(tokens == most || tokens <= most && index + 1 == parts.len());
            }
        }
    }
}
