//! What one step computes, and what says how long that takes.

use super::line::Line;
use super::picos::Picos;
use hwprofiles::Missing;

/// A chunk of one sequence's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Tokens that enter.
    pub new: u64,
    /// Tokens of the sequence that are in the KV cache already.
    pub past: u64,
}

/// A step's batch: chunks of prompts, and sequences that decode one token each. Decodes stand there by their sums: what
/// attention takes is a matter of all tokens, not of the mean context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Batch<'a> {
    /// The chunks.
    pub pieces: &'a [Piece],
    /// Sequences that decode.
    pub decodes: u64,
    /// Tokens that those attend to, all together, the new ones among them.
    pub decode_tokens: u64,
    /// Sequences whose next token is sampled: the decodes, and those whose last chunk this is.
    pub sampled: u64,
}

impl Batch<'_> {
    /// Tokens that enter the model.
    pub fn tokens(&self) -> u64 {
        self.decodes + self.pieces.iter().map(|piece| piece.new).sum::<u64>()
    }
}

/// Says what steps take on the devices, without the host's overhead.
pub trait StepPrices {
    /// A step of `batch`.
    fn step(&mut self, batch: &Batch<'_>) -> Result<Picos, Missing>;

    /// Steps in which `decodes` sequences decode and nothing else happens, over `tokens` tokens and more: a line that
    /// holds at `tokens`.
    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<Line, Missing>;

    /// A number for the plan, and the machine's state, that these are the prices of, where they are those of several.
    fn course(&self) -> usize {
        0
    }
}
