//! Why a rule cannot be followed.

use crate::error::PlannerError;

/// Why a rule cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum NoRule {
    /// The machine lacks a device of a kind.
    #[error("the machine has no {0}")]
    NoDevice(&'static str),
    /// What the rule wants does not fit or cannot move.
    #[error(transparent)]
    Impossible(#[from] PlannerError),
}
