//! Requests, and what became of them.

use crate::error::Error;
use crate::sampling::Sampling;
use planner::Trace;
use scenarios::{Phase, Scheduler};
use std::time::Duration;

/// Someone asks for the continuation of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its number.
    pub id: u64,
    /// When it comes, counted from the first pass of its service.
    pub arrival: Duration,
    /// The tokens to continue; at least one.
    pub prompt: Vec<u32>,
    /// The most tokens of the answer; at least one.
    pub output_tokens: u64,
    /// How they are chosen. Each request draws random numbers of its own.
    pub sampling: Sampling,
    /// The tokens that end the answer; the one that did is its last.
    pub stop: Vec<u32>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It has as many tokens as were asked for.
    Length,
    /// The model said so, by a token of [`Request::stop`], or the client ([`Client::ends`]).
    Stop,
    /// The run was ended before.
    Interrupted,
    /// A device failed.
    Failed,
}

/// What became of a request. Times count from the first pass of its service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The request's number.
    pub id: u64,
    /// When it came.
    pub arrival: Duration,
    /// When the pass began in which its prompt began to enter.
    pub scheduled: Duration,
    /// When its first token was there.
    pub first_token: Duration,
    /// When its last token was there.
    pub last_token: Duration,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// The answer.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
}

/// Who sends requests, in the order of their arrival. Asked between passes, while all devices wait.
pub trait Client: Send {
    /// The next request; nothing where there is none now. After an answer there may be one again, not earlier than that.
    fn next(&mut self) -> Option<Request>;

    /// `held` was taken and did not come yet: in its place comes who comes sooner since somebody was answered, if anybody.
    fn sooner(&mut self, _held: &mut Request) {}

    /// Whether the answer of request `id` ends here, its last token being the last of `tokens`.
    fn ends(&mut self, _id: u64, _tokens: &[u32]) -> bool {
        false
    }

    /// Request `id` was answered, or refused, at that time.
    fn done(&mut self, _id: u64, _at: Duration) {}
}

/// Requests that do not care for answers.
impl<I: Iterator<Item = Request> + Send> Client for I {
    fn next(&mut self) -> Option<Request> {
        Iterator::next(self)
    }
}

/// How passes are made up of requests, in the words of vLLM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batching {
    /// Sequences that run at once; no more than the setup's extent has.
    pub max_num_seqs: u64,
    /// Tokens of a pass; no more than batch · chunk of the setup's extent.
    pub max_num_batched_tokens: u64,
    /// Whether prompts enter in passes of their own, before anybody decodes on; otherwise beside decodes.
    pub prefill_first: bool,
    /// Who comes first.
    pub scheduler: Scheduler,
}

/// What a service says while it runs.
#[derive(Debug)]
pub enum Event {
    /// A request has one token more.
    Token {
        /// The request.
        id: u64,
        /// The token.
        token: u32,
    },
    /// A request came to its end.
    Answered(Answer),
    /// A request can never be answered.
    Refused {
        /// The request.
        id: u64,
        /// Why.
        reason: Error,
    },
    /// A pass was made.
    Made(Made),
}

/// A pass that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The program that ran: that of prefill where a prompt entered.
    pub phase: Phase,
    /// When it began.
    pub begin: Duration,
    /// When all lanes were done with it.
    pub end: Duration,
    /// By device, how long it was at work.
    pub busy: Vec<Duration>,
    /// Of the prompts that entered: tokens in the cache before, and tokens that entered.
    pub entered: Vec<[u64; 2]>,
    /// Sequences that decoded a token each.
    pub decodes: u64,
    /// Tokens that those attended to, all together, the new ones among them.
    pub decode_tokens: u64,
    /// Sequences that got a token.
    pub sampled: u64,
}

/// What a run of prompts of one length yields.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The output tokens of each sequence.
    pub tokens: Vec<Vec<u32>>,
    /// What happened when.
    pub trace: Trace,
}
