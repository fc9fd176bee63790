//! What a slot of the KV cache holds.

use crate::sampling::{Sampler, Sampling};

/// A sequence: its tokens so far, and what chooses the next one.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub tokens: Vec<u32>,
    pub sampler: Sampler,
}

impl Sequence {
    /// Slots without one.
    pub fn none(slots: u64) -> Vec<Self> {
        let sampler = || Sampler::new(Sampling::Greedy).expect("greedy has no numbers");
        (0..slots).map(|_| Self { tokens: vec![], sampler: sampler() }).collect()
    }
}
