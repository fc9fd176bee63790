//! A request inside an engine.

use crate::clock::SimTime;
use crate::serving::engine::request::{Request, ServedRequest};
use crate::serving::kv::blocks::RunId;

/// The freed blocks of a sequence that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnBlocks {
    /// Their run.
    pub run: RunId,
    /// How many of them hold all their tokens.
    pub filled: u64,
    /// How many of them must not be overwritten if any is to be of use: all of them if windows are
    /// in the last ones.
    pub least: u64,
}

/// A request that waits or runs.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub request: Request,
    /// Tokens of the answer so far. While it decodes, see [`Sequence::joined`].
    pub generated: u64,
    /// While it decodes: the replica's count of decode steps when the answer had no token yet. This
    /// may be negative.
    pub joined: Option<i64>,
    /// Tokens in the KV cache. While it decodes, these are all known tokens but the last.
    pub computed: u64,
    /// Blocks that it holds. While it decodes, these are the blocks that the computed tokens need.
    pub held: u64,
    /// Prefixes among them that other sequences may hold too, and the blocks of these prefixes.
    pub shared: Vec<u64>,
    pub shared_blocks: u64,
    /// Names of its prompt that it has found or computed.
    pub named: usize,
    /// While it waits: its own freed blocks.
    pub freed: Option<OwnBlocks>,
    /// While it waits: the number of its first tokens whose KV cache is in the swap space.
    pub swapped: u64,
    /// With the SLO policy: when its prompt must begin to enter at the latest for a first token in
    /// time.
    pub latest: SimTime,
    pub scheduled: Option<SimTime>,
    pub first_token: Option<SimTime>,
    /// When the client has its first token.
    pub delivered: Option<SimTime>,
    pub last_token: SimTime,
    pub cached_tokens: u64,
    pub fetched_tokens: u64,
    pub preemptions: u32,
    /// Counts the uses of this place, so that a planned end of an earlier use can be told apart.
    pub life: u32,
}

impl Sequence {
    pub fn new(request: Request, life: u32) -> Self {
        Self {
            request,
            generated: 0,
            joined: None,
            computed: 0,
            held: 0,
            shared: Vec::new(),
            shared_blocks: 0,
            named: 0,
            freed: None,
            swapped: 0,
            latest: SimTime::ZERO,
            scheduled: None,
            first_token: None,
            delivered: None,
            last_token: SimTime::ZERO,
            cached_tokens: 0,
            fetched_tokens: 0,
            preemptions: 0,
            life,
        }
    }

    /// Tokens of prompt and answer so far.
    pub fn known(&self) -> u64 {
        self.request.prompt_tokens + self.generated
    }

    /// Whether it has its first token and had it within `limit`.
    pub fn had_first_within(&self, limit: SimTime) -> bool {
        self.first_token.is_some_and(|first| first <= self.request.arrival + limit)
    }

    /// The answered request, once it has its last token, which its client has after `delay`.
    pub fn served(&self, delay: SimTime) -> ServedRequest {
        let Request { id, arrival, prompt_tokens, output_tokens, .. } = self.request;
        ServedRequest {
            id,
            arrival,
            prompt_tokens,
            output_tokens,
            scheduled: self.scheduled.unwrap_or(arrival),
            first_token: self.delivered.unwrap_or(self.last_token + delay),
            last_token: self.last_token + delay,
            cached_tokens: self.cached_tokens,
            fetched_tokens: self.fetched_tokens,
            preemptions: self.preemptions,
        }
    }
}
