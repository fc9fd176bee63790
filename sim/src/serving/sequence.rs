//! A request inside an engine.

use super::blocks::RunId;
use super::picos::Picos;
use super::request::{Request, Served};

/// A request that waits or runs.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub request: Request,
    /// Tokens of the answer that are there; while it decodes, see [`Sequence::joined`].
    pub generated: u64,
    /// While it decodes: what of the replica's count of decode steps it was when no token of the answer was there yet
    /// (that may be less than nothing).
    pub joined: Option<i64>,
    /// Tokens in the KV cache; while it decodes, all known tokens but the last.
    pub computed: u64,
    /// Blocks that it holds; while it decodes, those that the computed tokens need.
    pub held: u64,
    /// Prefixes among them that others may hold too, and their blocks.
    pub shared: Vec<u64>,
    pub shared_blocks: u64,
    /// Names of its prompt that it has found or computed.
    pub named: usize,
    /// While it waits: where its own blocks were freed, and how many of them hold all their tokens.
    pub freed: Option<(RunId, u64)>,
    /// While it waits: its first tokens, whose KV cache is in the swap space.
    pub swapped: u64,
    /// Where the policy asks for it: when its prompt must begin to enter, so that its first token is in time.
    pub latest: Picos,
    pub scheduled: Option<Picos>,
    pub first_token: Option<Picos>,
    pub last_token: Picos,
    pub cached_tokens: u64,
    pub fetched_tokens: u64,
    pub preemptions: u32,
    /// Counts what happened in this place, so that an end that was foreseen is known to be of another life.
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
            latest: Picos::ZERO,
            scheduled: None,
            first_token: None,
            last_token: Picos::ZERO,
            cached_tokens: 0,
            fetched_tokens: 0,
            preemptions: 0,
            life,
        }
    }

    /// Tokens of prompt and answer that are there.
    pub fn known(&self) -> u64 {
        self.request.prompt_tokens + self.generated
    }

    /// Whether it has had its first token, and within so long.
    pub fn had_first_within(&self, limit: Picos) -> bool {
        self.first_token.is_some_and(|first| first <= self.request.arrival + limit)
    }

    /// What became of it.
    pub fn served(&self) -> Served {
        let Request { id, arrival, prompt_tokens, output_tokens, .. } = self.request;
        Served {
            id,
            arrival,
            prompt_tokens,
            output_tokens,
            scheduled: self.scheduled.unwrap_or(arrival),
            first_token: self.first_token.unwrap_or(self.last_token),
            last_token: self.last_token,
            cached_tokens: self.cached_tokens,
            fetched_tokens: self.fetched_tokens,
            preemptions: self.preemptions,
        }
    }
}
