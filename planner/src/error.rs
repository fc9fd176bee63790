//! What can be wrong with a plan, or with making one.

use crate::program::LowerError;
use hwprofiles::{Bytes, Missing};

/// Everything that the planner refuses.
#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    /// A rate that nobody measured.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Bytes must move where no link goes.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A placement needs more of a memory than it holds.
    #[error("memory '{memory}' would have to hold {needed} and holds {capacity}")]
    TooLarge {
        /// Which memory.
        memory: String,
        /// What the placement takes.
        needed: Bytes,
        /// What there is.
        capacity: Bytes,
    },
    /// The solver failed; infeasible problems are not failures.
    #[error("the solver gave up: {reason}")]
    Solver {
        /// Its words.
        reason: String,
    },
}
