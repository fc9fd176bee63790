//! What the arithmetic of a team of cores can do at most, by where its operands come from.

use crate::files::Presence;
use crate::units::{FlopPerSec, Provenance};
use serde::{Deserialize, Serialize};

/// The three ceilings of matrix products with one instruction set in one weight format. They differ
/// up to sixfold, so that no single number can be called the peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCeilings {
    /// Where they came from.
    pub source: Provenance,
    /// Operands and sums stay in registers or tiles: the instructions alone.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub resident: Presence<FlopPerSec>,
    /// Operands come from the cores' own caches.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub cached: Presence<FlopPerSec>,
    /// Weights come from memory; at the row count at which that is fastest.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub streamed: Presence<FlopPerSec>,
}

/// From how many rows on a wide instruction set is faster than a narrow one, weights streamed from
/// memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossover {
    /// Where it came from.
    pub source: Provenance,
    /// The instruction set of few rows: `avx512`.
    pub below: String,
    /// That of many: `amx`.
    pub above: String,
    /// The fewest rows measured from which on `above` is never slower; `absent` where at the most
    /// rows it still is.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub rows: Presence<u64>,
}
