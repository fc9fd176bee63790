//! Speculative decoding: a small draft model proposes tokens, and the model verifies them in one
//! step.
//!
//! ```yaml
//! speculative: {draft: llama-3.2-1b, tokens: [2, 4, 8], acceptance: 0.8}
//! ```
//!
//! The draft `mtp` is the model's own module that predicts several tokens.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use hwprofiles::Ratio;
use serde::{Deserialize, Serialize};

const MAX_TOKENS: u64 = 64;

/// The draft's name that stands for the model's own MTP module.
pub const MTP_MODULE: &str = "mtp";

/// How many tokens a draft model proposes, and how many of them are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speculation {
    /// Tokens of each sequence that the draft model proposes for one step.
    pub tokens: u64,
    /// The chance that a proposed token is accepted, given that all proposed tokens before it are.
    pub acceptance: Ratio,
}

impl Speculation {
    /// Mean number of tokens of each sequence that a step yields: the accepted ones, and one that
    /// the model itself adds. With γ proposed tokens and acceptance α this is (1 − α^(γ+1)) ÷ (1 −
    /// α) (Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding,
    /// ICML 2023, equation 1).
    pub fn tokens_per_step(&self) -> f64 {
        let alpha = self.acceptance.get();
        (0..=self.tokens).map(|accepted| alpha.powi(accepted as i32)).sum()
    }
}

/// Reads `speculative`: returns its section and one choice for each number of proposed tokens.
pub(crate) fn read_speculative<'a>(
    root: &DocumentSection<'a>,
) -> Result<Option<(DocumentSection<'a>, Vec<Speculation>)>, ScenarioError> {
    let Some(section) = root.section("speculative")? else { return Ok(None) };
    section.only(&["draft", "tokens", "acceptance"])?;
    let wanted = "the chance that a proposed token is accepted, above 0 and at most 1, is wanted";
    let acceptance = section.positive("acceptance")?.ok_or_else(|| section.missing("acceptance", wanted))?;
    let acceptance = Ratio::new(acceptance).filter(|alpha| alpha.get() <= 1.0);
    let acceptance = acceptance.ok_or_else(|| section.wrong("acceptance", wanted))?;
    let missing = || section.missing("tokens", "how many the draft proposes for a step: a number, or a list");
    let all = section.counts("tokens", MAX_TOKENS)?.ok_or_else(missing)?;
    let choices = all.into_iter().map(|tokens| Speculation { tokens, acceptance }).collect();
    Ok(Some((section, choices)))
}

/// What a scenario may choose from: a draft model, and how many tokens it may propose.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpeculationChoice<D> {
    /// The draft model: a name or path in a scenario, a model once it is looked up.
    pub draft: D,
    /// One for each number of tokens that may be proposed; at least one.
    pub choices: Vec<Speculation>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_yields_from_one_token_to_all_proposed_and_one() {
        let tokens_per_step =
            |tokens, alpha| Speculation { tokens, acceptance: Ratio::new(alpha).unwrap() }.tokens_per_step();
        assert_eq!(tokens_per_step(4, 1.0), 5.0);
        assert!((tokens_per_step(4, 1e-9) - 1.0).abs() < 1e-8);
        // The closed form of the sum.
        assert!((tokens_per_step(5, 0.8) - (1.0 - 0.8f64.powi(6)) / 0.2).abs() < 1e-12);
    }
}
