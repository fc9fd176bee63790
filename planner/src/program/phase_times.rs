//! The times of the phases of a run.

use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};

/// What a user waits for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseTimes {
    /// Time to the first token.
    pub ttft: Seconds,
    /// Time per output token after the first; absent where one token is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Seconds>,
}
