//! The most that the arithmetic of a team of cores reaches, by where its operands come from.

use crate::files::Presence;
use crate::units::{FlopPerSec, Provenance};
use serde::{Deserialize, Serialize};

/// The three ceilings of matrix products with one instruction set in one weight format. They differ
/// up to sixfold, so none of them alone is the peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCeilings {
    /// Where they came from.
    pub source: Provenance,
    /// With operands and sums in registers or tiles: the instructions alone.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub resident: Presence<FlopPerSec>,
    /// With operands from the cores' own caches.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub cached: Presence<FlopPerSec>,
    /// With weights from memory, at the row count that is fastest.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub streamed: Presence<FlopPerSec>,
}

/// The number of rows from which a wide instruction set is faster than a narrow one, weights
/// streamed from memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossover {
    /// Where it came from.
    pub source: Provenance,
    /// The instruction set for few rows: `avx512`.
    pub below: String,
    /// The instruction set for many rows: `amx`.
    pub above: String,
    /// The fewest measured rows from which `above` is never slower; `absent` where it is slower
    /// even at the most rows.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub rows: Presence<u64>,
}
