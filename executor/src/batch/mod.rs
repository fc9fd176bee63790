//! What one forward pass computes: the sequences, their tokens, and how the next token is chosen.

pub(crate) mod by_phase;
pub(crate) mod logprobs;
pub(crate) mod pass;
pub(crate) mod sampling;
pub(crate) mod sequence;
