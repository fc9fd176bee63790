//! Requests, and their results.

use crate::batch::logprobs::TokenLogprobs;
use crate::batch::sampling::Sampling;
use crate::error::ExecutorError;
use planner::Trace;
use scenarios::{Phase, Scheduler};
use std::time::Duration;

/// A request to continue a text.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationRequest {
    /// Its number.
    pub id: u64,
    /// When it arrives, counted from the first pass of its service.
    pub arrival: Duration,
    /// The tokens to continue; at least one.
    pub prompt: Vec<u32>,
    /// The most tokens of the result; at least one.
    pub output_tokens: u64,
    /// How tokens are chosen. Each request draws random numbers of its own.
    pub sampling: Sampling,
    /// The tokens that end the result. The one that ended it is its last token.
    pub stop: Vec<u32>,
    /// Whether the log-probability of each token is wanted, and of how many of the most probable
    /// ones beside it.
    pub logprobs: Option<usize>,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// It has as many tokens as the request allows.
    Length,
    /// The model ended it with a token of [`GenerationRequest::stop`], or the client did
    /// ([`Client::stops_after`]).
    Stop,
    /// The run was ended before.
    Interrupted,
    /// A device failed.
    Failed,
}

/// The result of a request. Times count from the first pass of its service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationResult {
    /// The request's number.
    pub id: u64,
    /// When the request arrived.
    pub arrival: Duration,
    /// Start of the pass in which its prompt began to enter.
    pub scheduled: Duration,
    /// When its first token was sampled.
    pub first_token: Duration,
    /// When its last token was sampled.
    pub last_token: Duration,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// The output tokens.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// A source of requests, in the order of their arrival. It is called between passes, while all
/// devices wait.
pub trait Client: Send {
    /// The next request, or `None` while there is none. After [`Client::finished`] there may be one
    /// again, which arrives no earlier than that.
    fn next(&mut self) -> Option<GenerationRequest>;

    /// `held` came from [`Client::next`] and has not arrived yet. If a request that arrives earlier
    /// is known by now, the client puts it into `held` and keeps the other one.
    fn exchange_for_earlier(&mut self, _held: &mut GenerationRequest) {}

    /// Nothing is there to compute: waits at most `most` for a request. Returns false where none
    /// will ever come, which ends the run.
    fn wait(&mut self, _most: Duration) -> bool {
        false
    }

    /// Whether nobody wants the result of request `id` any more. It is asked before each pass.
    fn is_cancelled(&mut self, _id: u64) -> bool {
        false
    }

    /// Whether request `id` ends with the last of its output `tokens`.
    fn stops_after(&mut self, _id: u64, _tokens: &[u32]) -> bool {
        false
    }

    /// Request `id` was finished, refused or cancelled at that time.
    fn finished(&mut self, _id: u64, _at: Duration) {}
}

/// A fixed list of requests, which does not depend on the results.
impl<I: Iterator<Item = GenerationRequest> + Send> Client for I {
    fn next(&mut self) -> Option<GenerationRequest> {
        Iterator::next(self)
    }
}

/// How requests are batched into passes. Names are vLLM's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batching {
    /// Sequences that run at once; at most the batch of the setup's extent.
    pub max_num_seqs: u64,
    /// Tokens of a pass; at most batch · chunk of the setup's extent.
    pub max_num_batched_tokens: u64,
    /// Whether prompts enter in passes of their own, before any sequence decodes further. Otherwise
    /// they share passes with decodes.
    pub prefill_first: bool,
    /// Which waiting request is admitted first.
    pub scheduler: Scheduler,
}

/// What a service reports while it runs.
#[derive(Debug)]
pub enum GenerationEvent {
    /// A request has one more token.
    Token {
        /// The request.
        id: u64,
        /// The token.
        token: u32,
        /// Its log-probability, where that is wanted.
        logprobs: Option<TokenLogprobs>,
    },
    /// A request is finished.
    Finished(GenerationResult),
    /// A request can never be answered.
    Refused {
        /// The request.
        id: u64,
        /// Why.
        reason: ExecutorError,
    },
    /// The client has cancelled a request: its slot is free.
    Cancelled {
        /// The request.
        id: u64,
    },
    /// A pass has ended.
    PassDone(PassReport),
}

/// Tokens of a prompt that entered in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptChunk {
    /// Tokens that were in the KV cache before.
    pub past_tokens: u64,
    /// Tokens that entered.
    pub new_tokens: u64,
}

/// What a pass computed, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassReport {
    /// The program that ran: prefill's where a prompt entered.
    pub phase: Phase,
    /// When it began.
    pub begin: Duration,
    /// When all lanes had finished it.
    pub end: Duration,
    /// By device: the time that it was busy.
    pub busy: Vec<Duration>,
    /// The prompts that entered.
    pub entered: Vec<PromptChunk>,
    /// Sequences that decoded one token each.
    pub decodes: u64,
    /// Sum over those sequences of the tokens attended to, the new token included.
    pub decode_tokens: u64,
    /// Sequences that got a token.
    pub sampled: u64,
    /// Requests that have a slot after the pass.
    pub running: u64,
    /// Tokens of theirs in the KV cache.
    pub cached_tokens: u64,
}

/// The output of prompts of one length that ran as one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedBatch {
    /// The output tokens of each sequence.
    pub tokens: Vec<Vec<u32>>,
    /// What ran when.
    pub trace: Trace,
}
