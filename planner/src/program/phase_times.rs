//! The times that a user waits for.

use hwprofiles::Seconds;
use scenarios::Workload;
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

impl PhaseTimes {
    /// The smaller of each time. A time that is absent here is absent.
    pub fn min(self, other: Self) -> Self {
        let tpot = self.tpot.map(|own| other.tpot.map_or(own, |other| own.min(other)));
        Self { ttft: self.ttft.min(other.ttft), tpot }
    }

    /// Prompt tokens and output tokens per second of all sequences of `load`, in three digits or
    /// whole; `-` where there is no time.
    pub fn rates(&self, load: &Workload) -> [String; 2] {
        let rate = |tokens: u64, time: Option<Seconds>| match time {
            Some(time) if time > Seconds::ZERO => rate_text(tokens as f64 / time.get()),
            _ => "-".to_owned(),
        };
        [rate(load.batch * load.prompt_tokens, Some(self.ttft)), rate(load.batch, self.tpot)]
    }
}

/// Tokens a second in three digits.
pub fn rate_text(rate: f64) -> String {
    match rate {
        slow if slow < 9.995 => format!("{slow:.2}"),
        some if some < 99.95 => format!("{some:.1}"),
        fast => format!("{fast:.0}"),
    }
}
