//! A training step: what is asked of a model that learns.
//!
//! ```yaml
//! workload: {training: {sequences: 8, tokens: 2048}}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::load::workload::Workload;
use crate::model::transformer::Model;
use serde::{Deserialize, Serialize};

const MOST_SEQUENCES: u64 = 1 << 20;
const MOST_TOKENS: u64 = 1 << 32;

/// One step of training: equal sequences go forward and backward, then every parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Sequences.
    pub sequences: u64,
    /// Tokens of each.
    pub tokens: u64,
}

impl Training {
    /// A batch of the same length: of each sequence the last token is what the others foretell.
    pub(crate) fn alike(&self) -> Workload {
        Workload::new(self.sequences, self.tokens.saturating_sub(1).max(1), 1)
    }

    /// The key that does not fit `model`, its value, and what would be right.
    pub(crate) fn misfit(&self, model: &Model) -> Option<(&'static str, u64, String)> {
        if self.tokens > model.max_positions {
            let wanted = format!("{} has {} positions", model.name, model.max_positions);
            return Some(("training.tokens", self.tokens, wanted));
        }
        let (_, _, wanted) = self.alike().misfit(model)?;
        Some(("training.sequences", self.sequences, wanted))
    }
}

/// The training of a workload, where it is one.
pub(crate) fn read_training(root: &Section<'_>) -> Result<Option<Training>, ScenarioError> {
    let Some(section) = root.section("workload.training")? else { return Ok(None) };
    section.only(&["sequences", "tokens"])?;
    let count = |key: &str, limit: u64| {
        let wanted = format!("a whole number from 1 to {limit} is wanted");
        section.count(key, limit)?.ok_or_else(|| section.missing(key, &wanted))
    };
    let training =
        Training { sequences: count("sequences", MOST_SEQUENCES)?, tokens: count("tokens", MOST_TOKENS)? };
    match root.section("workload")? {
        Some(workload) => workload.only(&["training"])?,
        None => unreachable!("the training is in it"),
    }
    Ok(Some(training))
}
