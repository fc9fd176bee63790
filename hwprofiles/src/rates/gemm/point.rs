//! Measured matrix products.

use crate::units::{Checked, Seconds, distinct};
use serde::{Deserialize, Serialize};

/// One measured matrix product y[m, n] = x[m, k] · W[n, k]ᵀ whose weights came from the device's
/// own memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmPoint {
    /// Rows of x: tokens in the step.
    #[serde(deserialize_with = "crate::units::checked")]
    pub m: u64,
    /// Rows of W: output features.
    #[serde(deserialize_with = "crate::units::checked")]
    pub n: u64,
    /// Columns of W: input features.
    #[serde(deserialize_with = "crate::units::checked")]
    pub k: u64,
    /// Median time of one call, without the fork-join or the host's share of a launch.
    #[serde(rename = "time_us", with = "crate::files::table::microseconds")]
    pub time: Seconds,
}

impl Checked for Vec<GemmPoint> {
    fn check(&self) -> Result<(), String> {
        distinct(self.iter().map(|p| (p.m, p.n, p.k)), "m, n and k")
    }
}
