//! Reasons why a rule cannot be followed.

use crate::error::PlannerError;

/// The reason why a rule cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum NoRule {
    /// The machine lacks a device of a kind.
    #[error("the machine has no {0}")]
    NoDevice(&'static str),
    /// No size of prefill step fits.
    #[error("no size of its prefill step fits")]
    NoStep,
    /// The rule's placement does not fit or cannot move data.
    #[error(transparent)]
    Impossible(#[from] PlannerError),
}
