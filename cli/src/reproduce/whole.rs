//! A row's run that is a whole scenario, answered as `fulcrum sweep` and `fulcrum sim` answer it.

use crate::exit::{Outcome, Sort};
use crate::machines::Machines;
use crate::models::Models;
use crate::pipeline::Question;
use crate::sweep::{self, Find};
use crate::train;
use anyhow::anyhow;
use scenarios::{Document, Setting};
use serde_json::Value;
use sim::Largest;

/// A scenario, and the models that it may name besides the presets.
pub struct Whole<'a> {
    pub scenario: &'a Value,
    pub models: Models,
}

impl Whole<'_> {
    /// The numbers of what becomes of it, by path: `ttft_s.mean`, `slo_attainment`, and of a training step `step_s`.
    pub fn numbers(&self) -> Outcome<Vec<(String, f64)>> {
        self.with(&[])
    }

    /// The largest value of `find`'s key with which `share` of the requests keep their limits, as `found`.
    pub fn largest(&self, find: &str, share: f64) -> Outcome<Vec<(String, f64)>> {
        let find: Find = find.parse().or_input()?;
        let keeps = |at: f64| {
            let numbers = self.with(&[Setting { key: find.key.clone(), values: vec![find.value(at)] }])?;
            let kept = numbers.iter().find(|(path, _)| path == "slo_attainment").map(|(_, kept)| *kept);
            let unlimited = || anyhow!("the scenario has no slo that requests could keep");
            Ok(kept.ok_or_else(unlimited).or_input()? >= share)
        };
        let found = match sim::largest(find.range, find.range[0], find.fineness, keeps)? {
            Largest::Between(keeps, _) | Largest::Most(keeps) => keeps,
            Largest::None(breaks) => {
                let message = format!("{}: too few keep their limits even with {breaks}", find.key);
                return Err(anyhow!(message)).or_input();
            }
        };
        Ok(vec![("found".to_owned(), found)])
    }

    fn with(&self, settings: &[Setting]) -> Outcome<Vec<(String, f64)>> {
        let document = Document::from_yaml("scenario", &self.scenario.to_string()).or_input()?;
        let scenario = document.scenario_with(settings).or_input()?;
        let question = Question::known(&scenario, &Machines::default(), &self.models)?;
        let answer = match &question.training {
            Some(training) => serde_json::to_value(train::run(&question, training)?.1).or_failed()?,
            None => sweep::measures(&question)?.1,
        };
        let mut numbers = Vec::new();
        flatten(String::new(), &answer, &mut numbers);
        Ok(numbers)
    }
}

/// A name that expressions know: arrows of links are words, since expressions subtract.
pub fn as_name(text: &str) -> String {
    text.replace("->", "_to_")
}

/// What is a number, by its path.
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
    fn a_scenario_says_what_the_commands_say() {
        let scenario = json!({"machine": "h100-sxm", "model": "mine", "dtype": {"weights": "bf16", "kv": "bf16"},
            "workload": {"batch": 2, "prompt_tokens": 64, "output_tokens": 8}});
        let models = Models::default();
        models.put("mine", Model::preset("opt-125m").expect("a preset"));
        let numbers = Whole { scenario: &scenario, models }.numbers().expect("numbers");
        let all = named(&numbers, "ttft_s.mean") + 7.0 * named(&numbers, "tpot_s.mean");
        assert!((named(&numbers, "e2el_s.mean") / all - 1.0).abs() < 1e-9, "{numbers:?}");
        assert!((named(&numbers, "output_tokens_per_s") * all / 16.0 - 1.0).abs() < 1e-9);
        let nobody = Whole { scenario: &scenario, models: Models::default() };
        assert!(nobody.numbers().is_err(), "nobody else knows that model");
    }

    #[test]
    fn the_largest_load_keeps_the_limits_and_more_does_not() {
        let scenario = json!({"machine": "h100-sxm", "model": "llama-3.1-8b", "dtype": {"weights": "bf16", "kv": "bf16"},
            "workload": {"concurrency": 1, "requests": 200, "prompt_tokens": 512, "output_tokens": 64},
            "engine": "vllm", "slo": {"tpot": "12 ms"}});
        let whole = Whole { scenario: &scenario, models: Models::default() };
        let found = named(&whole.largest("workload.concurrency=1..128", 0.9).expect("a load"), "found");
        let kept = |users: f64| {
            let values = vec![Value::from(users as u64)];
            let setting = Setting { key: "workload.concurrency".to_owned(), values };
            named(&whole.with(&[setting]).expect("numbers"), "slo_attainment")
        };
        assert!(kept(found) >= 0.9 && kept(found + 1.0) < 0.9, "{found}");
        assert!(whole.largest("workload.concurrency", 0.9).is_err());
    }
}
