//! A step: one forward pass over a batch.

use hwprofiles::Phase;
use serde::{Deserialize, Serialize};

/// One forward pass over a batch of equal sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Step {
    /// Prefill or decode.
    pub phase: Phase,
    /// Sequences.
    pub batch: u64,
    /// Tokens of each sequence that go through the model in this step.
    pub new_tokens: u64,
    /// Tokens of each sequence that are already in the KV cache.
    pub past_tokens: u64,
}

impl Step {
    /// The prefill of a whole prompt.
    pub fn prefill(batch: u64, prompt_tokens: u64) -> Self {
        Self { phase: Phase::Prefill, batch, new_tokens: prompt_tokens, past_tokens: 0 }
    }

    /// The decode step that follows `past_tokens` tokens.
    pub fn decode(batch: u64, past_tokens: u64) -> Self {
        Self { phase: Phase::Decode, batch, new_tokens: 1, past_tokens }
    }

    /// The decode step that verifies `new_tokens` tokens of each sequence after `past_tokens`.
    pub fn verify(batch: u64, new_tokens: u64, past_tokens: u64) -> Self {
        Self { new_tokens, ..Self::decode(batch, past_tokens) }
    }

    /// Rows that need logits: each prompt's last token in prefill, every token in decode.
    pub fn sampled(&self) -> u64 {
        match self.phase {
            Phase::Prefill => self.batch,
            Phase::Decode => self.rows(),
        }
    }

    /// Rows of every activation inside the layers: batch · new tokens.
    pub fn rows(&self) -> u64 {
        self.batch * self.new_tokens
    }
}
