//! How fast a device computes: measured points, and the time of a shape between them.

use crate::units::{Provenance, Seconds};
use serde::{Deserialize, Serialize};

/// How an estimate relates to what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The very point was measured.
    Measured,
    /// Between measured points.
    Interpolated,
    /// Outside the measured region, at the efficiency of its boundary.
    Extrapolated,
    /// From a datasheet or an estimate.
    Estimated,
}

impl Basis {
    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Measured => "measured",
            Basis::Interpolated => "interpolated",
            Basis::Extrapolated => "extrapolated",
            Basis::Estimated => "estimated",
        }
    }
}

/// What a time consists of, mostly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// A fixed part that does not depend on the size.
    Launch,
    /// FLOP ÷ rate.
    Compute,
    /// Bytes ÷ bandwidth.
    Memory,
}

impl Bound {
    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Launch => "launch",
            Bound::Compute => "compute",
            Bound::Memory => "memory",
        }
    }
}

/// A time and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The time of one call, launch overhead not included.
    pub time: Seconds,
    /// The lower end of the 80 % band: of ten such times one is below.
    pub low: Seconds,
    /// The upper end of the 80 % band: of ten such times one is above.
    pub high: Seconds,
    /// Its largest part.
    pub bound: Bound,
    /// How it was found.
    pub basis: Basis,
}

impl Estimate {
    /// No work takes no time.
    pub const ZERO: Self = Self {
        time: Seconds::ZERO,
        low: Seconds::ZERO,
        high: Seconds::ZERO,
        bound: Bound::Launch,
        basis: Basis::Measured,
    };

    /// One after the other: the bound is the longer one's, the basis the weaker.
    pub fn then(&self, other: &Self) -> Self {
        Self {
            time: self.time + other.time,
            low: self.low + other.low,
            high: self.high + other.high,
            bound: if other.time > self.time { other.bound } else { self.bound },
            basis: self.basis.max(other.basis),
        }
    }

    /// A time of which nothing better is known than its basis. The 80 % band is then time ÷ (1 + w) to
    /// time · (1 + w), where w is 3 % for a measured time, 15 % between measured points, 40 % outside them,
    /// and 100 % for a datasheet's.
    pub fn with_default_band(time: Seconds, bound: Bound, basis: Basis) -> Self {
        let width = match basis {
            Basis::Measured => 1.03,
            Basis::Interpolated => 1.15,
            Basis::Extrapolated => 1.4,
            Basis::Estimated => 2.0,
        };
        Self { time, low: time / width, high: time * width, bound, basis }
    }
}

impl Basis {
    /// What becomes of this basis when the points themselves came from `source`: only measured points
    /// make a measured or interpolated estimate.
    pub fn sourced(self, source: &Provenance) -> Self {
        match source {
            Provenance::Measured { .. } => self,
            Provenance::Datasheet { .. } | Provenance::Estimated { .. } => Basis::Estimated,
        }
    }
}
