//! Sliding windows: layers in which a token attends to the most recent tokens only.

use serde::{Deserialize, Serialize};

/// The tokens that a layer attends to, and keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlidingWindow {
    /// Most tokens that a token attends to, itself included.
    pub tokens: u64,
    /// Whether the context is cut into chunks of `tokens` tokens, and a token attends to those of
    /// its own chunk (Llama 4); otherwise the window moves with the token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chunked: bool,
}

impl SlidingWindow {
    /// A window of this many tokens that moves with the token.
    pub fn new(tokens: u64) -> Self {
        Self { tokens, chunked: false }
    }

    /// Tokens that the token after `past` tokens attends to, itself included.
    pub fn seen(&self, past: u64) -> u64 {
        if self.chunked { past % self.tokens + 1 } else { (past + 1).min(self.tokens) }
    }
}
