//! Why there is nothing to export.

use super::engine::ExportTarget;
use crate::error::PlannerError;
use crate::placement::PlanError;

/// Why there is nothing to export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The engine does not run such models, or needs a device that the machine lacks.
    #[error("{engine} cannot run {what}: {wanted}")]
    Unsupported {
        /// Which engine.
        engine: ExportTarget,
        /// The model or machine that it cannot use.
        what: String,
        /// What it can use.
        wanted: String,
    },
    /// Nothing that the engine can do fits the machine.
    #[error("no placement of {engine} fits: {reason}")]
    Unfit {
        /// Which engine.
        engine: ExportTarget,
        /// What is missing for the placement that needs least.
        reason: PlannerError,
    },
    /// The plan is not for this machine and model.
    #[error("plan: {0}")]
    Plan(#[from] PlanError),
    /// There is no plan to export.
    #[error("{0}")]
    Planner(#[from] PlannerError),
}
