//! The choices that are made before anything is placed.

use hwprofiles::GroupDivision;
use scenarios::Formats;
use std::fmt;

/// A combination of groups of GPUs, number formats and draft.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// How the GPUs that compute as one device divide the model.
    pub division: GroupDivision,
    /// Number formats.
    pub formats: Formats,
    /// The draft's device and the number of tokens that it proposes for each step. `None` without a
    /// draft.
    pub draft: Option<(String, u64)>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.division.gpus() > 1 {
            write!(f, "{}, ", self.division)?;
        }
        if let Some((device, tokens)) = &self.draft {
            write!(f, "draft of {tokens} tokens on {device}, ")?;
        }
        self.formats.fmt(f)
    }
}
