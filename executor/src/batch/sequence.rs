//! The content of a slot of the KV cache.

use crate::batch::sampling::{Sampler, Sampling};

/// A sequence: its tokens so far, and the sampler that chooses the next one.
#[derive(Debug)]
pub(crate) struct SlotSequence {
    pub tokens: Vec<u32>,
    pub sampler: Sampler,
}

impl SlotSequence {
    /// Slots without a sequence.
    pub fn empty_slots(slots: u64) -> Vec<Self> {
        let sampler = || Sampler::new(Sampling::Greedy).expect("greedy has no numbers");
        (0..slots).map(|_| Self { tokens: vec![], sampler: sampler() }).collect()
    }
}
