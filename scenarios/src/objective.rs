//! What a plan is to be best at, and what it must keep.

use crate::error::ScenarioError;
use crate::section::Section;
use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is minimised, or maximised.
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
}

impl Objective {
    /// Every objective.
    pub const ALL: [Objective; 3] = [Objective::Latency, Objective::Tpot, Objective::Throughput];

    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Latency => "latency",
            Objective::Tpot => "tpot",
            Objective::Throughput => "throughput",
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

/// The objective under `objective` of a scenario; latency where there is none.
pub(crate) fn read_objective(root: &Section<'_>) -> Result<Objective, ScenarioError> {
    const KEY: &str = "objective";
    let computed = Objective::ALL.map(Objective::name).join(", ");
    let needs = |what: &str, needed: &str| {
        let instead = format!("it needs {needed}, and plans do not carry them yet: use one of {computed}");
        Err(root.unsupported(KEY, what, &instead))
    };
    let Some(word) = root.text(KEY)? else { return Ok(Objective::default()) };
    match word {
        "cost" => needs("cost per token", "the price of every device and memory and their lifetime"),
        "energy" => needs("energy per token", "the power of every device, idle and busy"),
        _ => Objective::ALL
            .into_iter()
            .find(|objective| objective.name() == word)
            .ok_or_else(|| root.wrong(KEY, &format!("one of {computed} is wanted"))),
    }
}

/// The limits under `slo`.
pub(crate) fn read_slo(section: &Section<'_>) -> Result<Slo, ScenarioError> {
    section.only(&["ttft", "tpot"])?;
    let limit = |key: &str| -> Result<Option<Seconds>, ScenarioError> {
        const WANTED: &str = "a duration with its unit is wanted, like \"50 ms\"";
        if section.get(key).is_some_and(|value| !value.is_string()) {
            return Err(section.wrong(key, WANTED));
        }
        let Some(text) = section.text(key)? else { return Ok(None) };
        let limit: Seconds = text.parse().map_err(|error| section.wrong(key, &format!("{error}")))?;
        if limit.get() > 0.0 {
            Ok(Some(limit))
        } else {
            Err(section.wrong(key, "a duration above 0 is wanted"))
        }
    };
    Ok(Slo { ttft: limit("ttft")?, tpot: limit("tpot")? })
}
