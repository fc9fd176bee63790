//! The choices that are made before anything is placed.

use scenarios::Formats;
use std::fmt;

/// A combination of tensor parallelism, number formats and draft.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Number of GPUs that compute as one device.
    pub tensor_parallel: u64,
    /// Number formats.
    pub formats: Formats,
    /// The draft's device and the number of tokens that it proposes for each step. `None` without a
    /// draft.
    pub draft: Option<(String, u64)>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tensor_parallel > 1 {
            write!(f, "tensor_parallel {}, ", self.tensor_parallel)?;
        }
        if let Some((device, tokens)) = &self.draft {
            write!(f, "draft of {tokens} tokens on {device}, ")?;
        }
        self.formats.fmt(f)
    }
}
