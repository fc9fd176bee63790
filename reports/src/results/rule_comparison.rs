//! Comparison of planned placements with those of simple rules, by measured time.

use crate::numbers::format::percent;
use crate::numbers::pair::Pair;
use crate::numbers::statistics::{geometric_mean_ratio, rank_correlation};
use crate::results::configuration::Configuration;
use crate::results::validation::Validation;
use std::collections::BTreeMap;

/// The kind of the planned placement.
const PLANNED: &str = "planned";
/// A planned placement this much slower than the best rule still counts as good: repeats differ by
/// as much.
const ALIKE: f64 = 0.03;

/// The placements of one load, with the times of the whole request.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleComparison {
    /// Batch, prompt and output tokens.
    pub load: [u64; 3],
    /// The time of the planned placement.
    pub planned: Pair,
    /// The times of the rules' placements, by kind.
    pub rules: BTreeMap<String, Pair>,
}

impl RuleComparison {
    /// Measured time of the planned placement ÷ that of the fastest rule.
    pub fn ratio(&self) -> Option<f64> {
        let best = self.rules.values().map(|pair| pair.measured.get()).min_by(f64::total_cmp)?;
        (best > 0.0).then(|| self.planned.measured.get() / best)
    }

    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        std::iter::once(&self.planned).chain(self.rules.values()).map(Pair::seconds)
    }
}

impl Validation {
    /// The loads that were run with a planned placement and with a rule's.
    pub fn rule_comparisons(&self) -> Vec<RuleComparison> {
        let mut times: BTreeMap<[u64; 3], BTreeMap<String, Pair>> = BTreeMap::new();
        for it in &self.configurations {
            let label = &it.label;
            let load = [label.batch, label.prompt_tokens, label.output_tokens];
            times.entry(load).or_default().insert(label.placement.clone(), request(it));
        }
        let comparison = |(load, mut rules): ([u64; 3], BTreeMap<String, Pair>)| {
            let planned = rules.remove(PLANNED)?;
            (!rules.is_empty()).then_some(RuleComparison { load, planned, rules })
        };
        times.into_iter().filter_map(comparison).collect()
    }
}

/// The time of the whole request.
fn request(it: &Configuration) -> Pair {
    let further = it.label.output_tokens.saturating_sub(1) as f64;
    let ttft = it.ttft();
    let tpot = it.tpot().unwrap_or_default();
    Pair {
        predicted: ttft.predicted + tpot.predicted * further,
        measured: ttft.measured + tpot.measured * further,
    }
}

/// The comparison for a terminal; empty where there is nothing to compare.
pub(crate) fn rule_comparison_text(rule_comparisons: &[RuleComparison]) -> String {
    let ratios: Vec<f64> = rule_comparisons.iter().filter_map(RuleComparison::ratio).collect();
    let pairs: Vec<_> = ratios.iter().map(|&ratio| (ratio, 1.0)).collect();
    let Some(mean) = geometric_mean_ratio(&pairs) else { return String::new() };
    let good = ratios.iter().filter(|ratio| **ratio <= 1.0 + ALIKE).count();
    let all: Vec<_> = rule_comparisons.iter().flat_map(RuleComparison::pairs).collect();
    let ranks = rank_correlation(&all).map_or(String::new(), |ranks| {
        format!("  rank correlation of predicted and measured requests: {ranks:.3}\n")
    });
    format!(
        "\nplanned ÷ fastest rule that was run: geometric mean {mean:.2}\n  within {} of it or faster: {good} of {} loads\n{ranks}",
        percent(ALIKE),
        ratios.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::Seconds;

    fn pair(predicted: f64, measured: f64) -> Pair {
        Pair { predicted: Seconds::new(predicted), measured: Seconds::new(measured) }
    }

    fn comparison(planned: Pair, rules: [Pair; 2]) -> RuleComparison {
        let rules = ["all-cpu", "fill-memory"].map(str::to_owned).into_iter().zip(rules).collect();
        RuleComparison { load: [1, 128, 8], planned, rules }
    }

    #[test]
    fn the_plan_is_held_against_the_rule_that_was_measured_to_be_fastest() {
        let slow = comparison(pair(1.0, 1.1), [pair(0.5, 2.0), pair(3.0, 1.0)]);
        assert!((slow.ratio().unwrap() - 1.1).abs() < 1e-12);
        let fast = comparison(pair(1.0, 1.0), [pair(2.0, 2.0), pair(4.0, 4.0)]);
        let text = rule_comparison_text(&[slow.clone(), fast.clone()]);
        assert!(text.contains("within 3.0 % of it or faster: 1 of 2 loads"), "{text}");
        assert!(text.contains("geometric mean 0.74"), "{text}");
        assert!(rule_comparison_text(&[fast]).contains("requests: 1.000"));
        assert_eq!(rule_comparison_text(&[]), "");
    }
}
