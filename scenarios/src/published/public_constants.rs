//! Constants of engines and parts that were chosen on the public runs, with their priors, so that
//! they can be chosen again without some of them.

use crate::published::public_runs::PublicSetup;
use hwprofiles::{FileError, yaml};
use serde::Deserialize;
use serde_json::{Value, json};

const SHIPPED: &str = include_str!("../../public/constants.yaml");

/// One constant.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicConstant {
    /// What it is, in words.
    pub name: String,
    /// Its key among those of an engine's `execution`.
    key: String,
    /// The engines that have it; all where empty.
    #[serde(default)]
    engines: Vec<String>,
    /// The memory channels of the CPUs that it is for; all where absent.
    #[serde(default)]
    channels: Option<ChannelCount>,
    /// The build of llama.cpp that no longer has it.
    #[serde(default)]
    before: Option<u32>,
    /// Its lowest and its highest value.
    pub prior: [f64; 2],
    /// The unit of its values; empty for a ratio.
    unit: String,
}

/// How many memory channels a CPU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChannelCount {
    /// At most two.
    Two,
    /// More.
    Many,
}

impl PublicConstant {
    /// The values that are tried, from one end of the prior to the other.
    pub const CANDIDATES: usize = 5;
    /// The candidate that stands for the prior where no run speaks for another.
    pub const MIDDLE: usize = Self::CANDIDATES / 2;

    /// The shipped constants.
    ///
    /// # Errors
    /// The file is wrong.
    pub fn shipped() -> Result<Vec<Self>, FileError> {
        yaml::read(SHIPPED, "constants.yaml")
    }

    /// The value of a candidate: a geometric series over the prior.
    pub fn candidate(&self, index: usize) -> f64 {
        let [low, high] = self.prior;
        low * (high / low).powf(index as f64 / (Self::CANDIDATES - 1) as f64)
    }

    /// A value with its unit.
    pub fn text(&self, value: f64) -> String {
        format!("{value:.3} {}", self.unit).trim_end().to_owned()
    }

    /// Whether a run of `setup` depends on it, on a CPU of so many memory channels.
    pub fn applies_to(&self, setup: &PublicSetup, channels: Option<u64>) -> bool {
        let engine = setup.cell("engine").to_lowercase();
        let counted = channels.map(|count| if count <= 2 { ChannelCount::Two } else { ChannelCount::Many });
        let is_late = self.before.is_some_and(|before| setup.build().is_none_or(|build| build >= before));
        (self.engines.is_empty() || self.engines.contains(&engine))
            && (self.channels.is_none() || self.channels == counted)
            && !(is_late && engine == "llama.cpp")
    }

    /// Its key and the candidate's value, as a scenario's `engine.execution` has them.
    pub fn entry(&self, index: usize) -> (String, Value) {
        let value = self.candidate(index);
        let value = match self.unit.as_str() {
            "" => json!(value),
            unit => json!(format!("{value} {unit}")),
        };
        (self.key.clone(), value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::document::Document;

    #[test]
    fn every_constant_changes_a_scenario_that_can_be_read() {
        let constants = PublicConstant::shipped().expect("a list");
        let setups = PublicSetup::shipped().expect("tables");
        for constant in &constants {
            let [first, last] = [0, PublicConstant::CANDIDATES - 1].map(|index| constant.candidate(index));
            assert!((first / constant.prior[0] - 1.0).abs() < 1e-9, "{}", constant.name);
            assert!((last / constant.prior[1] - 1.0).abs() < 1e-9, "{}", constant.name);
            let channels = constant.channels.map(|count| if count == ChannelCount::Two { 2 } else { 8 });
            let mut concerned = setups.iter().filter(|setup| constant.applies_to(setup, channels));
            let setup = concerned.find(|setup| setup.scenario().is_ok()).expect("a setup");
            let mut scenario = setup.scenario_with(&[constant.entry(0)].into()).expect("a scenario");
            scenario["workload"] = json!({"batch": 1, "prompt_tokens": 8, "output_tokens": 8});
            let read = Document::from_yaml("s.yaml", &scenario.to_string()).expect("YAML").scenario();
            assert!(read.is_ok(), "{scenario}: {:?}", read.err());
            assert_ne!(setup.scenario(), setup.scenario_with(&[constant.entry(0)].into()));
        }
    }
}
