//! How products of a query and a key become scores.

use crate::cpu::activation::soft_cap_slice;
use std::ops::Range;

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
    /// Whether the window does not move: positions are cut into chunks of its size, and a token
    /// sees those of its own chunk, up to its own.
    pub chunked: bool,
}

impl Scores {
    /// Scaled products, without a cap or a window.
    pub const fn scaled(scale: f32) -> Self {
        Self { scale, cap: None, window: None, chunked: false }
    }

    /// How many of the `length` positions up to its own a token sees.
    pub fn seen(self, length: usize) -> usize {
        self.window.map_or(length, |window| length.min(window))
    }

    /// The first position that the token at `position` sees.
    pub(super) fn first_seen(self, position: usize) -> usize {
        match self.window {
            None => 0,
            Some(window) if self.chunked => position / window * window,
            Some(window) => (position + 1).saturating_sub(window),
        }
    }

    /// The rows of a cache that the token at `position` sees, its own included, where position p is
    /// in row p mod `capacity`. They are all rows once a window that moves has been filled.
    pub(super) fn rows_seen(self, position: usize, capacity: usize) -> Range<usize> {
        let (first, seen) = (self.first_seen(position), position + 1 - self.first_seen(position));
        let start = first % capacity;
        if start + seen <= capacity { start..start + seen } else { 0..capacity }
    }

    /// Caps scaled products in place.
    #[inline(always)]
    pub(super) fn cap(self, scaled: &mut [f32]) {
        if let Some(cap) = self.cap {
            soft_cap_slice(scaled, cap);
        }
    }
}
