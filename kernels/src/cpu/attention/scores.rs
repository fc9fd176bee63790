//! How products of a query and a key become scores.

use crate::cpu::activation::soft_cap_slice;

/// How a query's product with a key becomes a score, and which keys the query sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// The factor of every product.
    pub scale: f32,
    /// Where there is a cap, a score x becomes cap · tanh(x / cap).
    pub cap: Option<f32>,
    /// The number of positions that a token sees, its own the last of them; at least 1. `None`
    /// means all positions up to its own.
    pub window: Option<usize>,
}

impl Scores {
    /// Scaled products, without a cap or a window.
    pub const fn scaled(scale: f32) -> Self {
        Self { scale, cap: None, window: None }
    }

    /// How many of the `length` positions up to its own a token sees.
    pub fn seen(self, length: usize) -> usize {
        self.window.map_or(length, |window| length.min(window))
    }

    /// The first position that the token at `position` sees.
    pub(super) fn first_seen(self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Caps scaled products in place.
    #[inline(always)]
    pub(super) fn cap(self, scaled: &mut [f32]) {
        if let Some(cap) = self.cap {
            soft_cap_slice(scaled, cap);
        }
    }
}
