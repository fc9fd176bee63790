//! A datasheet fact without which a fit cannot start.

use crate::units::DType;

/// A fact that a part's file does not state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the GPU '{gpu}' does not state its {fact}, which a fit of {dtype} products starts from: add {example} to its file"
)]
pub struct MissingFact {
    /// The part.
    pub gpu: String,
    /// The format.
    pub dtype: DType,
    /// What is missing.
    pub fact: &'static str,
    /// How it is written.
    pub example: &'static str,
}
