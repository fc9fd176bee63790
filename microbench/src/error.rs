//! What can go wrong while measuring.

use hwprofiles::WriteError;
use std::path::PathBuf;

/// A measurement that could not be made, or must not be believed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A kernel computed something else than its definition says.
    #[error(
        "{what} computed {got}, but {wanted} is right: nothing is reported; this is a defect of Fulcrum or of the machine"
    )]
    Wrong {
        /// Which kernel on which operands.
        what: String,
        /// What it computed.
        got: f64,
        /// What is right.
        wanted: f64,
    },
    /// Memory or threads could not be had.
    #[error(transparent)]
    Kernels(#[from] kernels::Error),
    /// There is no GPU, or what it needs is missing.
    #[error("there is no GPU to check: {0}")]
    NoGpu(kernels::cuda::Absent),
    /// The operating system does not say what we need to know.
    #[error("{}: {reason}; Linux with /proc is needed", file.display())]
    System {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What was measured could not be saved.
    #[error(transparent)]
    Save(#[from] WriteError),
}
