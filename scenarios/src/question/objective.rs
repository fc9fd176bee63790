//! The objective of a plan, and the limits that it must keep.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is minimised or maximised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// End-to-end time of the batch: TTFT + (output tokens − 1) · TPOT.
    #[default]
    Latency,
    /// Time per output token.
    Tpot,
    /// Output tokens per second.
    Throughput,
    /// Energy per output token of all devices, idle power included where it is known. That of
    /// memories and links is not.
    Energy,
    /// Cost per output token: the machine's price over its lifetime, and electricity.
    Cost,
}

impl Objective {
    /// Every objective.
    pub const ALL: [Objective; 5] =
        [Objective::Latency, Objective::Tpot, Objective::Throughput, Objective::Energy, Objective::Cost];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Latency => "latency",
            Objective::Tpot => "tpot",
            Objective::Throughput => "throughput",
            Objective::Energy => "energy",
            Objective::Cost => "cost",
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Limits that a plan must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Longest time to the first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft: Option<Seconds>,
    /// Longest time per output token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Seconds>,
}

impl Slo {
    /// Whether there is any limit.
    pub fn has_limits(&self) -> bool {
        self.ttft.is_some() || self.tpot.is_some()
    }
}

/// Reads `objective`; latency if it is absent.
pub(crate) fn read_objective(root: &DocumentSection<'_>) -> Result<Objective, ScenarioError> {
    const KEY: &str = "objective";
    let Some(word) = root.text(KEY)? else { return Ok(Objective::default()) };
    let words = Objective::ALL.map(Objective::name).join(", ");
    Objective::ALL
        .into_iter()
        .find(|objective| objective.name() == word)
        .ok_or_else(|| root.wrong(KEY, &format!("one of {words} is wanted")))
}

/// Reads the limits under `slo`.
pub(crate) fn read_slo(section: &DocumentSection<'_>) -> Result<Slo, ScenarioError> {
    const KEYS: [&str; 2] = ["ttft", "tpot"];
    // Whoever writes a percentile or a share finds where it is asked for.
    let is_share = |key: &str| {
        let other =
            !KEYS.contains(&key) && (key == "attainment" || KEYS.iter().any(|known| key.contains(known)));
        other || section.get(key).is_some_and(serde_json::Value::is_object)
    };
    let percentile = section.keys().find(|key| is_share(key));
    if let Some(key) = percentile {
        let wanted = "limits are ttft and tpot; capacity.attainment or `sweep --within` says how many requests keep them";
        return Err(section.wrong(key, wanted));
    }
    section.only(&KEYS)?;
    let limit = |key: &str| section.quantity(key, ["a duration", "50 ms"], |limit: &Seconds| limit.get());
    Ok(Slo { ttft: limit("ttft")?, tpot: limit("tpot")? })
}
