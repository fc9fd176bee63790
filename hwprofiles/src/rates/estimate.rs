//! Times with a band around them, and what they are based on.

use crate::units::{Provenance, Seconds};
use serde::{Deserialize, Serialize};

/// How an estimate relates to what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The shape itself was measured.
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

    /// Whether the shape is within what was measured.
    pub fn is_measured(self) -> bool {
        matches!(self, Self::Measured | Self::Interpolated)
    }
}

/// What most of a time is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// A fixed part that does not depend on the size.
    Launch,
    /// Computing: FLOP ÷ rate.
    Compute,
    /// Reading and writing memory: bytes ÷ bandwidth.
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
    /// The lower end of the 80 % band: one of ten such times is below it.
    pub low: Seconds,
    /// The upper end of the 80 % band: one of ten such times is above it.
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

    /// Both, one after the other. The bound is that of the longer one, the basis the weaker of the
    /// two.
    pub fn then(&self, other: &Self) -> Self {
        Self {
            time: self.time + other.time,
            low: self.low + other.low,
            high: self.high + other.high,
            bound: if other.time > self.time { other.bound } else { self.bound },
            basis: self.basis.max(other.basis),
        }
    }

    /// Half the width of the 80 % band of a measured time, as a logarithm or a share.
    pub(crate) const MEASURED_SPREAD: f64 = 0.03;

    /// A time with the usual band of its basis: from time ÷ (1 + w) to time · (1 + w), where w is 3
    /// % for a measured time, 15 % between measured points, 40 % outside them, and 100 % for a
    /// datasheet. The last three are priors: no set of points was fitted for them.
    pub fn with_default_band(time: Seconds, bound: Bound, basis: Basis) -> Self {
        let width = match basis {
            Basis::Measured => 1.0 + Self::MEASURED_SPREAD,
            Basis::Interpolated => 1.15,
            Basis::Extrapolated => 1.4,
            Basis::Estimated => 2.0,
        };
        Self { time, low: time / width, high: time * width, bound, basis }
    }
}

impl Basis {
    /// The basis of an estimate from points that came from `source`. Only measured points give a
    /// measured or interpolated estimate.
    pub fn sourced(self, source: &Provenance) -> Self {
        match source {
            Provenance::Measured { .. } => self,
            Provenance::Datasheet { .. } | Provenance::Estimated { .. } => Basis::Estimated,
        }
    }
}
