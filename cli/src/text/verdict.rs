//! What a quickstart found, in words, and what to do next.

use fulcrum::OtherPrograms;
use reports::Validation;
use std::path::Path;

/// Differences below this share are not told apart.
const ALIKE: f64 = 0.03;

/// The verdict: how good the prediction was, whether planning was worth it, and what comes next.
pub fn quickstart(validation: &Validation, others: Option<OtherPrograms>, page: &Path) -> String {
    let mut text = String::new();
    let summary = validation.summary();
    let errors = [("TTFT", summary.ttft), ("TPOT", summary.tpot)];
    let errors = errors.into_iter().filter_map(|(name, errors)| Some((name, errors?)));
    let errors: Vec<_> =
        errors.map(|(name, errors)| format!("{name} by {:.1} %", errors.median * 100.0)).collect();
    if !errors.is_empty() {
        let count = validation.configurations.len();
        text += &format!("Prediction: off in {} (median of {count} runs).\n", errors.join(", "));
    }
    let ratios = validation.rule_comparisons().iter().filter_map(|load| load.ratio()).collect::<Vec<_>>();
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        text += &format!("Plan: {} (mean of {} loads).\n", against_rules(mean), ratios.len());
    }
    if let Some(others) = others.filter(|others| others.disturb()) {
        text += &format!(
            "Other programs kept {:.1} of {:.0} cores busy meanwhile: read errors as upper bounds.\n",
            others.busy, others.processors
        );
    }
    let page = page.display();
    text + &format!("Next: open {page}; `fulcrum advise` says which models run here.\n")
}

/// The planned placement's time as a share of the best rule's, in words.
fn against_rules(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 1.0 - ALIKE => {
            format!("the planned placement is {:.0} % faster than the best rule", (1.0 / ratio - 1.0) * 100.0)
        }
        ratio if ratio <= 1.0 + ALIKE => "the planned placement is as fast as the best rule".to_owned(),
        ratio => format!("the planned placement is {:.0} % slower than the best rule", (ratio - 1.0) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_times_is_told_as_a_difference_of_speed() {
        assert!(against_rules(0.5).contains("100 % faster"));
        assert!(against_rules(0.99).contains("as fast"));
        assert!(against_rules(1.1).contains("10 % slower"));
    }
}
