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
