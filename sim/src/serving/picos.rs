//! Serving's clock: whole picoseconds.

use crate::time::SimTime;
use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Sub};

/// A point, or a span, of serving time in whole picoseconds; the end is after 213 days.
///
/// Finer than [`SimTime`], because what one more token of context adds to a step is a few nanoseconds, and must be a
/// whole number for series of steps to be exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Picos(pub u64);

impl Picos {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// Beyond every simulation.
    pub const MAX: Self = Self(u64::MAX);

    /// The least whole number of picoseconds that is not below `time`.
    pub fn rounding_up(time: Seconds) -> Self {
        Self(time.to_picos_ceil())
    }

    /// As model time.
    pub fn to_seconds(self) -> Seconds {
        Seconds::new(self.0 as f64 * 1e-12)
    }

    /// So many of it; stops at [`Picos::MAX`].
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// `self − earlier`, or zero where that would be negative.
    pub fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<SimTime> for Picos {
    fn from(time: SimTime) -> Self {
        Self(time.nanos().saturating_mul(1000))
    }
}

/// Stops at [`Picos::MAX`].
impl Add for Picos {
    type Output = Self;
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// Stops at [`Picos::MAX`].
impl AddAssign for Picos {
    fn add_assign(&mut self, span: Self) {
        *self = *self + span;
    }
}

/// The span since an earlier point. Panics where `earlier` is later.
impl Sub for Picos {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self(self.0.checked_sub(earlier.0).expect("time does not run backwards"))
    }
}
