//! The times that a user waits for.

use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};

/// Time to the first token and time per output token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseTimes {
    /// Time to the first token.
    pub ttft: Seconds,
    /// Time per output token after the first. Absent if a sequence has one output token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Seconds>,
}
