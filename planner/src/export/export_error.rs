//! Why there is nothing to export.

use super::engine::ExportTarget;
use crate::error::PlannerError;
use crate::placement::PlanError;

/// Why there is nothing to export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The engine runs other models, or needs a device that is not there.
    #[error("{engine} cannot run {what}: {wanted}")]
    Unsupported {
        /// Which engine.
        engine: ExportTarget,
        /// What it was asked.
        what: String,
        /// What it can do.
        wanted: String,
    },
    /// Nothing that the engine can do fits the machine.
    #[error("no placement of {engine} fits: {reason}")]
    Unfit {
        /// Which engine.
        engine: ExportTarget,
        /// What the one that needs least lacks.
        reason: PlannerError,
    },
    /// The plan is not for this machine and model.
    #[error("plan: {0}")]
    Plan(#[from] PlanError),
}
