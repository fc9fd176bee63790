//! A row's run that is a whole scenario, answered as `fulcrum sweep` and `fulcrum sim` answer it.

use crate::error::{Error, OrError, Result};
use crate::pipeline::{CachedCatalog, PreparedScenario, train};
use crate::serve::measures;
use crate::sweep::LimitSearch;
use planner::Effort;
use scenarios::{Document, Setting};
use serde_json::Value;
use sim::CapacityBracket;

/// A scenario, and what it may name besides machines and models that come with the program.
pub(crate) struct ScenarioRun<'a> {
    pub(crate) scenario: &'a Value,
    pub(crate) catalog: CachedCatalog,
}

impl ScenarioRun<'_> {
    /// The numbers of its answer by path: `ttft_s.mean`, `slo_attainment`; of a training step
    /// `step_s`.
    ///
    /// # Errors
    /// The scenario is wrong, or nothing fits.
    pub(crate) fn numbers(&self) -> Result<Vec<(String, f64)>> {
        self.numbers_with(&[])
    }

    /// The largest value of a key with which `share` of the requests keep their limits, as `found`.
    /// The search is written as for `fulcrum sweep --find`.
    ///
    /// # Errors
    /// The scenario or the search is wrong, or no value keeps the limits.
    pub(crate) fn largest(&self, search: &str, share: f64) -> Result<Vec<(String, f64)>> {
        let search: LimitSearch = search.parse().or_input()?;
        let keeps = |at: f64| {
            let setting = Setting { key: search.key.clone(), values: vec![search.value(at)] };
            let numbers = self.numbers_with(&[setting])?;
            let kept = numbers.iter().find(|(path, _)| path == "slo_attainment").map(|(_, kept)| *kept);
            let unlimited = || Error::input("the scenario has no slo that requests could keep");
            Ok(kept.ok_or_else(unlimited)? >= share)
        };
        let found = match sim::search_capacity(search.range, search.range[0], search.precision, keeps)? {
            CapacityBracket::Between(keeps, _) | CapacityBracket::Most(keeps) => keeps,
            CapacityBracket::None(breaks) => {
                let message = format!("{}: too few keep their limits even with {breaks}", search.key);
                return Err(Error::input(message));
            }
        };
        Ok(vec![("found".to_owned(), found)])
    }

    fn numbers_with(&self, settings: &[Setting]) -> Result<Vec<(String, f64)>> {
        let document = Document::from_yaml("scenario", &self.scenario.to_string()).or_input()?;
        let scenario = document.scenario_with(settings).or_input()?;
        let prepared = PreparedScenario::cached(&scenario, &self.catalog)?;
        let answer = match prepared.training() {
            Some(_) => serde_json::to_value(train(&prepared)?.1).or_failed()?,
            None => measures(&prepared, Effort::SWEEP)?.1,
        };
        let mut numbers = Vec::new();
        flatten(String::new(), &answer, &mut numbers);
        Ok(numbers)
    }
}

/// A name for expressions: the arrow of a link becomes a word, because a minus sign subtracts.
pub(crate) fn as_name(text: &str) -> String {
    text.replace("->", "_to_")
}

/// Adds every number of `value` by its path.
fn flatten(path: String, value: &Value, numbers: &mut Vec<(String, f64)>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let key = as_name(key);
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(path, value, numbers);
            }
        }
        Value::Number(number) => numbers.extend(number.as_f64().map(|number| (path, number))),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scenarios::Model;
    use serde_json::json;

    fn named(numbers: &[(String, f64)], name: &str) -> f64 {
        numbers.iter().find(|(path, _)| path == name).expect(name).1
    }

    #[test]
    fn a_scenario_has_the_numbers_of_the_commands() {
        let scenario = json!({"machine": "h100-sxm", "model": "mine", "dtype": {"weights": "bf16", "kv": "bf16"},
            "workload": {"batch": 2, "prompt_tokens": 64, "output_tokens": 8}});
        let catalog = CachedCatalog::default();
        catalog.add_model("mine", Model::preset("opt-125m").expect("a preset"));
        let numbers = ScenarioRun { scenario: &scenario, catalog }.numbers().expect("numbers");
        let all = named(&numbers, "ttft_s.mean") + 7.0 * named(&numbers, "tpot_s.mean");
        assert!((named(&numbers, "e2el_s.mean") / all - 1.0).abs() < 1e-9, "{numbers:?}");
        assert!((named(&numbers, "output_tokens_per_s") * all / 16.0 - 1.0).abs() < 1e-9);
        let stranger = ScenarioRun { scenario: &scenario, catalog: CachedCatalog::default() };
        assert!(stranger.numbers().is_err(), "the model is known to the other run alone");
    }

    #[test]
    fn the_largest_load_keeps_the_limits_and_more_does_not() {
        let scenario = json!({"machine": "h100-sxm", "model": "llama-3.1-8b", "dtype": {"weights": "bf16", "kv": "bf16"},
            "workload": {"concurrency": 1, "requests": 200, "prompt_tokens": 512, "output_tokens": 64},
            "engine": "vllm", "slo": {"tpot": "12 ms"}});
        let whole = ScenarioRun { scenario: &scenario, catalog: CachedCatalog::default() };
        let found = named(&whole.largest("workload.concurrency=1..128", 0.9).expect("a load"), "found");
        let kept = |users: f64| {
            let values = vec![Value::from(users as u64)];
            let setting = Setting { key: "workload.concurrency".to_owned(), values };
            named(&whole.numbers_with(&[setting]).expect("numbers"), "slo_attainment")
        };
        assert!(kept(found) >= 0.9 && kept(found + 1.0) < 0.9, "{found}");
        assert!(whole.largest("workload.concurrency", 0.9).is_err());
    }
}
