//! What may be chosen before anything is placed.

use scenarios::Formats;
use std::fmt;

/// What may be chosen before anything is placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// How many GPUs compute as one device.
    pub tensor_parallel: u64,
    /// Number formats.
    pub formats: Formats,
    /// The device of the draft, and how many tokens it proposes for a step; nothing where there is none.
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
