//! The answer in a few sentences, for readers who stop after two lines.

use super::table::{per_million, thousands};
use super::{CapacityReport, CapacityResult};
use crate::numbers::format::percent;

impl CapacityReport {
    /// Fills in the answer: which machine costs least in total, by how much, and whether the bands
    /// of the machines' rates leave that open.
    pub fn with_answer(mut self) -> Self {
        let mut results: Vec<(&str, &CapacityResult)> =
            self.machines.iter().filter_map(|it| Some((it.name.as_str(), it.result.as_ref()?))).collect();
        results.sort_by(|one, other| one.1.total_cost.value.total_cmp(&other.1.total_cost.value));
        let mut answer = Vec::new();
        if let Some((name, least)) = results.first() {
            let years = least.years.len();
            let machines = match least.machines.value as u64 {
                1 => "one machine".to_owned(),
                count => format!("{count} machines"),
            };
            let which = if results.len() > 1 { "least cost over" } else { "over" };
            let [slow, fast] = [least.total_cost.slow, least.total_cost.fast].map(thousands);
            answer.push(format!(
                "{which} {years} years: {name}, {machines}, {} USD in all ({fast} – {slow}) with \
                 machines paid in full; {} for a million output tokens in the first year, machines \
                 spread over their life",
                thousands(least.total_cost.value),
                per_million(least.cost_per_token.value),
            ));
            for (other, result) in &results[1..] {
                let excess = result.total_cost.value / least.total_cost.value - 1.0;
                let bands_overlap = result.total_cost.fast < least.total_cost.slow;
                answer.push(format!(
                    "{other}: {} more{}",
                    percent(excess),
                    if bands_overlap {
                        "; the bands of their rates overlap, so that the order may be another"
                    } else {
                        ""
                    }
                ));
            }
        }
        let estimates = self.figures.iter().filter(|figure| figure.source.contains("estimate")).count();
        if estimates > 0 {
            answer.push(format!(
                "{estimates} of {} prices and rates are estimates: the assumptions at the end say which",
                self.figures.len()
            ));
        }
        self.answer = answer;
        self
    }
}
