//! Sliding windows: layers in which a token attends to the most recent tokens only.

use serde::{Deserialize, Serialize};

/// The window's length, and which layers have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlidingWindow {
    /// Tokens that a token attends to, itself included.
    pub tokens: u64,
    /// In every group of this many layers, the last one attends to the whole context; `None` means
    /// that every layer has the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_every: Option<u64>,
}

impl SlidingWindow {
    /// Whether `layer` has the window.
    pub fn applies_to(&self, layer: u64) -> bool {
        self.full_every.is_none_or(|every| !(layer + 1).is_multiple_of(every))
    }
}
