//! Errors of measuring.

use hwprofiles::WriteError;
use std::path::PathBuf;

/// A measurement that failed, or whose numbers must not be believed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A kernel computed something other than its definition.
    #[error(
        "{kernel} computed {got}, but {wanted} is right: nothing is reported; this is a defect of Fulcrum or of the machine"
    )]
    Wrong {
        /// Which kernel, on which operands.
        kernel: String,
        /// What it computed.
        got: f64,
        /// The right value.
        wanted: f64,
    },
    /// Memory or threads were not available.
    #[error(transparent)]
    Kernels(#[from] kernels::KernelError),
    /// There is no GPU, or what it needs is missing.
    #[error("there is no GPU to check: {0}")]
    NoGpu(kernels::cuda::GpuUnavailable),
    /// The operating system does not provide a fact that a measurement needs.
    #[error("{}: {reason}; Linux with /proc is needed", file.display())]
    System {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A host file describes another machine than this one.
    #[error("the file describes {described}, and this machine is {this}: measure it with `fulcrum bench`")]
    OtherMachine {
        /// The machine of the file.
        described: String,
        /// This machine.
        this: String,
    },
    /// A host file lacks a rate that a prediction needs.
    #[error("`{0}` is missing: measure it with `fulcrum bench`")]
    MissingRate(String),
    /// The measured numbers could not be saved.
    #[error(transparent)]
    Save(#[from] WriteError),
}
