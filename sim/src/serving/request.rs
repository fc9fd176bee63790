//! Requests, and what became of them.

use super::picos::Picos;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Someone asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number in its source.
    pub id: u64,
    /// When.
    pub arrival: Picos,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// What the prompt begins with: one name for each so many tokens ([`super::Engine::prefix_tokens`]). Prompts that
    /// begin with the same names begin with the same tokens.
    pub prefix: Vec<u64>,
}

/// A request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Served {
    /// Its number.
    pub id: u64,
    /// When it came.
    pub arrival: Picos,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// When its first chunk entered a step.
    pub scheduled: Picos,
    /// When its first token was there.
    pub first_token: Picos,
    /// When its last token was there.
    pub last_token: Picos,
    /// Tokens that need not be computed, since the KV cache had them.
    pub cached_tokens: u64,
    /// Tokens that need not be computed, since they were fetched from the second level of the prefix cache.
    pub fetched_tokens: u64,
    /// How often its KV cache was taken away.
    pub preemptions: u32,
}

impl Served {
    /// Time to the first token.
    pub fn ttft(&self) -> Picos {
        self.first_token - self.arrival
    }

    /// End-to-end latency.
    pub fn e2el(&self) -> Picos {
        self.last_token - self.arrival
    }

    /// Time per output token after the first: (last − first) / (output − 1); `None` where one token is all.
    pub fn tpot(&self) -> Option<Picos> {
        let gaps = self.output_tokens.checked_sub(1).filter(|&gaps| gaps > 0)?;
        Some(Picos((self.last_token - self.first_token).0 / gaps))
    }
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejected {
    /// Nothing goes in, or nothing comes out.
    Empty,
    /// It is longer than the model's positions, or the engine's limit.
    BeyondContext,
    /// Its KV cache alone is larger than all there is.
    BeyondKvCache,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejected::Empty => "no prompt or no output tokens",
            Rejected::BeyondContext => "longer than the longest context",
            Rejected::BeyondKvCache => "longer than the whole KV cache",
        })
    }
}
