//! How fast a device computes: measured points, and the time of a shape between them.

use crate::provenance::Provenance;
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

/// One measured matrix product y[m, n] = x[m, k] · W[n, k]ᵀ whose weights came from the device's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmPoint {
    /// Rows of x: tokens in the step.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub m: u64,
    /// Rows of W: output features.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub n: u64,
    /// Columns of W: input features.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub k: u64,
    /// Median time of one call, without the fork-join or launch.
    #[serde(rename = "time_us", with = "crate::table::microseconds")]
    pub time: Seconds,
}

/// Measured matrix products of one weight format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmRates {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, in any order; at least one. In files a table of `m,n,k,time_us`.
    #[serde(serialize_with = "crate::table::serialize", deserialize_with = "crate::checked::checked_table")]
    pub points: Vec<GemmPoint>,
}
