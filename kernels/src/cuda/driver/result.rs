//! Results of CUDA calls as errors of this crate.

use crate::runtime::KernelError;
use std::fmt::Display;

/// Turns the result of a CUDA call into one whose error says what the call was for.
pub(in crate::cuda) fn gpu_result<T, E: Display>(
    what: impl Display,
    result: Result<T, E>,
) -> Result<T, KernelError> {
    result.map_err(|error| KernelError::Gpu { what: what.to_string(), reason: error.to_string() })
}
