//! How fast a device computes: measured points, and the time of a shape between them.

use crate::units::Seconds;
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
