//! A plain ratio: a share of a peak, a factor.

use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;

/// A positive number without a unit: a share of a peak, a rate over another rate.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Ratio(f64);

impl Ratio {
    /// The whole.
    pub const ONE: Self = Self(1.0);

    /// The ratio `value`; `None` unless it is finite and above zero.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_finite() && value > 0.0).then_some(Self(value))
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let message =
            || de::Error::custom(format!("'{value}' is not a ratio: write a number above zero, as 0.71"));
        Self::new(value).ok_or_else(message)
    }
}
