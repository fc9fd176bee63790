//! The content of a slot of the KV cache.

use crate::batch::sampling::{Sampler, Sampling};

/// A sequence: its tokens so far, and the sampler that chooses the next one.
#[derive(Debug)]
pub(crate) struct SlotSequence {
    pub tokens: Vec<u32>,
    /// How many of its last tokens were proposed by a draft and are not verified yet.
    pub proposed: usize,
    pub sampler: Sampler,
}

impl SlotSequence {
    /// A sequence that begins with `tokens`.
    pub fn new(tokens: Vec<u32>, sampler: Sampler) -> Self {
        Self { tokens, proposed: 0, sampler }
    }

    /// Whether the token behind the first `reached` ones is still to be chosen: there is none, or
    /// one that is proposed.
    pub fn is_open(&self, reached: usize) -> bool {
        (self.tokens.len() - self.proposed..=self.tokens.len()).contains(&reached)
    }

    /// Places the chosen `token` behind the first `reached` tokens. A proposed token there is thus
    /// verified if it is the same; otherwise it and those behind it are dropped. Returns whether
    /// logits that were computed with tokens behind `reached` are right.
    pub fn choose(&mut self, reached: usize, token: u32) -> bool {
        if self.tokens.get(reached) == Some(&token) {
            self.proposed = self.tokens.len() - reached - 1;
            return true;
        }
        self.tokens.truncate(reached);
        self.tokens.push(token);
        self.proposed = 0;
        false
    }

    /// Slots without a sequence.
    pub fn empty_slots(slots: u64) -> Vec<Self> {
        let sampler = || Sampler::new(Sampling::Greedy).expect("greedy has no numbers");
        (0..slots).map(|_| Self::new(vec![], sampler())).collect()
    }
}
