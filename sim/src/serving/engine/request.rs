//! Requests, and what became of them.

use crate::clock::SimTime;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;

/// A request for an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number in its source.
    pub id: u64,
    /// When it arrives.
    pub arrival: SimTime,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// The names of the prompt's prefixes: one name for each
    /// [`super::EngineSettings::prefix_tokens`] tokens. Prompts that begin with the same names
    /// begin with the same tokens.
    pub prefix: Vec<u64>,
}

/// A request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServedRequest {
    /// Its number in its source.
    pub id: u64,
    /// When it arrived.
    pub arrival: SimTime,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// When its first chunk entered a step.
    pub scheduled: SimTime,
    /// When its first token was there.
    pub first_token: SimTime,
    /// When its last token was there.
    pub last_token: SimTime,
    /// Tokens that were found in the KV cache and not computed.
    pub cached_tokens: u64,
    /// Tokens that were fetched from the second level of the prefix cache and not computed.
    pub fetched_tokens: u64,
    /// How often it was preempted.
    pub preemptions: u32,
}

impl ServedRequest {
    /// Time to the first token.
    pub fn ttft(&self) -> SimTime {
        self.first_token - self.arrival
    }

    /// End-to-end latency.
    pub fn e2el(&self) -> SimTime {
        self.last_token - self.arrival
    }

    /// Time per output token after the first: (last − first) / (output − 1). `None` for an answer
    /// of one token.
    pub fn tpot(&self) -> Option<SimTime> {
        let gaps = self.output_tokens.checked_sub(1).filter(|&gaps| gaps > 0)?;
        Some(SimTime::from_picos((self.last_token - self.first_token).picos() / gaps))
    }
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectReason {
    /// It has no prompt tokens or no output tokens.
    Empty,
    /// It is longer than the model's positions, or than the engine's limit.
    BeyondContext,
    /// Its KV cache alone is larger than the whole KV cache.
    BeyondKvCache,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::Empty => "no prompt or no output tokens",
            RejectReason::BeyondContext => "longer than the longest context",
            RejectReason::BeyondKvCache => "longer than the whole KV cache",
        })
    }
}

/// Totals over the requests of an engine since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Requests that were taken.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Requests that were answered.
    pub answers: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
}

impl RequestTotals {
    pub(crate) fn add_request(&mut self, request: &Request) {
        self.requests += 1;
        self.prompt_tokens += request.prompt_tokens;
    }

    pub(crate) fn add_answer(&mut self, served: &ServedRequest) {
        self.answers += 1;
        self.output_tokens += served.output_tokens;
    }
}

impl Sum for RequestTotals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            requests: sum.requests + one.requests,
            prompt_tokens: sum.prompt_tokens + one.prompt_tokens,
            answers: sum.answers + one.answers,
            output_tokens: sum.output_tokens + one.output_tokens,
        })
    }
}
