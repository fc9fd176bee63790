//! Speculative decoding: a small model proposes tokens, the model itself checks them all in one step.
//!
//! ```yaml
//! speculative: {draft: llama-3.2-1b, tokens: [2, 4, 8], acceptance: 0.8}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::load::workload::Workload;
use crate::model::transformer::Model;
use hwprofiles::Ratio;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const MOST_TOKENS: u64 = 64;

/// How the output comes about where a draft proposes it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speculation {
    /// Tokens of each sequence that the draft proposes for one step.
    pub tokens: u64,
    /// The chance that the model would have said the proposed token too, given that it did so of those before.
    pub acceptance: Ratio,
}

impl Speculation {
    /// Tokens of each sequence that a step yields in the mean: those accepted before the first that is not, and the one that
    /// the model says itself. (1 − α^(γ+1)) ÷ (1 − α) for γ proposed and acceptance α (Leviathan, Kalman, Matias: Fast
    /// Inference from Transformers via Speculative Decoding, ICML 2023, equation 1).
    pub fn tokens_per_step(&self) -> f64 {
        let alpha = self.acceptance.get();
        (0..=self.tokens).map(|accepted| alpha.powi(accepted as i32)).sum()
    }
}

/// What a scenario says of it: the draft's name, and each number of tokens that may be proposed.
pub(crate) fn read_speculative<'a>(
    root: &Section<'a>,
) -> Result<Option<(Section<'a>, Vec<Speculation>)>, ScenarioError> {
    let Some(section) = root.section("speculative")? else { return Ok(None) };
    section.only(&["draft", "tokens", "acceptance"])?;
    let wanted = "the chance that a proposed token is accepted, above 0 and at most 1, is wanted";
    let acceptance = section.positive("acceptance")?.ok_or_else(|| section.missing("acceptance", wanted))?;
    let acceptance = Ratio::new(acceptance).filter(|alpha| alpha.get() <= 1.0);
    let acceptance = acceptance.ok_or_else(|| section.wrong("acceptance", wanted))?;
    let missing = || section.missing("tokens", "how many the draft proposes for a step: a number, or a list");
    let all = section.counts("tokens", MOST_TOKENS)?.ok_or_else(missing)?;
    let choices = all.into_iter().map(|tokens| Speculation { tokens, acceptance }).collect();
    Ok(Some((section, choices)))
}

/// What keeps `draft` from proposing for `model`: the key, its value, and what would be right. It must speak the model's tokens,
/// and both must reach as far as what is proposed.
pub(crate) fn misfit(
    draft: &Model,
    choices: &[Speculation],
    model: &Model,
    workload: &Workload,
) -> Option<(&'static str, Value, String)> {
    if draft.vocab != model.vocab {
        let wanted = format!(
            "its vocabulary has {} tokens, that of {} has {}: a model of the same family is wanted",
            draft.vocab, model.name, model.vocab
        );
        return Some(("draft", Value::from(&*draft.name), wanted));
    }
    let of_choice = |&speculation: &Speculation| {
        let speculated = Workload { speculation: Some(speculation), ..*workload };
        let (_, _, wanted) = [model, draft].into_iter().find_map(|model| speculated.misfit(model))?;
        Some(("tokens", Value::from(speculation.tokens), wanted))
    };
    choices.iter().find_map(of_choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_yields_from_one_token_to_all_proposed_and_one() {
        let of =
            |tokens, alpha| Speculation { tokens, acceptance: Ratio::new(alpha).unwrap() }.tokens_per_step();
        assert_eq!(of(4, 1.0), 5.0);
        assert!((of(4, 1e-9) - 1.0).abs() < 1e-8);
        // The closed form.
        assert!((of(5, 0.8) - (1.0 - 0.8f64.powi(6)) / 0.2).abs() < 1e-12);
    }
}
