//! How an engine batches: its limits and its habits.

use super::picos::Picos;
use super::request::{Rejected, Request};
use serde::{Deserialize, Serialize};

/// Who comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The shortest prompt first.
    ShortestFirst,
}

/// What the host does between two steps, while the devices wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Host {
    /// For every step.
    pub per_step: Picos,
    /// For every sequence of it.
    pub per_sequence: Picos,
}

impl Host {
    /// Before a step of so many sequences.
    pub fn of(&self, sequences: u64) -> Picos {
        Picos(self.per_step.0.saturating_add(self.per_sequence.0.saturating_mul(sequences)))
    }
}

/// An engine's settings, in the words of vLLM where it has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Engine {
    /// Sequences that run at once.
    pub max_num_seqs: u64,
    /// Tokens of one step; at least `max_num_seqs`.
    pub max_num_batched_tokens: u64,
    /// Tokens of a sequence at its end.
    pub max_model_len: u64,
    /// Blocks of the KV cache.
    pub num_blocks: u64,
    /// Tokens of a block.
    pub block_size: u64,
    /// Whether a prompt may enter in chunks; otherwise it enters as a whole, alone where it is longer than a step.
    pub chunked_prefill: bool,
    /// Whether blocks that are free are found again until they are overwritten.
    pub prefix_caching: bool,
    /// Tokens for each name of [`Request::prefix`]: a multiple of `block_size`.
    pub prefix_tokens: u64,
    /// Whether a request waits until there is room for all of its prompt, not only for its first chunk.
    pub reserve_prompt: bool,
    /// Who comes first.
    pub policy: Policy,
    /// What the host takes.
    pub host: Host,
}

impl Engine {
    /// Blocks of so many tokens.
    pub fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block_size)
    }

    /// Why `request` can never be served.
    pub fn refusal(&self, request: &Request) -> Option<Rejected> {
        let all = request.prompt_tokens.saturating_add(request.output_tokens);
        match () {
            () if request.prompt_tokens == 0 || request.output_tokens == 0 => Some(Rejected::Empty),
            () if all > self.max_model_len => Some(Rejected::BeyondContext),
            // The last token is sampled, not computed: it needs no room.
            () if self.blocks(all - 1) > self.num_blocks => Some(Rejected::BeyondKvCache),
            () => None,
        }
    }
}
