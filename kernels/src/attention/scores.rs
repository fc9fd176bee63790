//! From a product of a query and a key to a score.

use crate::exponential::exponential;

/// What becomes of a query's product with a key, and which keys it sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// Products are multiplied by it.
    pub scale: f32,
    /// Scores x become cap · tanh(x / cap), where there is a cap.
    pub cap: Option<f32>,
    /// A token sees so many positions, its own the last of them; all before it where nothing is said. At least 1.
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

    /// The scores of scaled products, in place.
    #[inline(always)]
    pub(super) fn cap(self, scaled: &mut [f32]) {
        if let Some(cap) = self.cap {
            soften(scaled, cap);
        }
    }
}

/// x = cap · tanh(x / cap), with tanh(z) = 1 − 2 / (e²ᶻ + 1).
#[inline(always)]
pub(crate) fn soften(values: &mut [f32], cap: f32) {
    let twice = 2.0 / cap;
    for value in values {
        *value = cap - 2.0 * cap / (exponential(*value * twice) + 1.0);
    }
}
