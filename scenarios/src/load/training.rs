//! A training step.
//!
//! ```yaml
//! workload: {training: {sequences: 8, tokens: 2048}}
//! ```

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::load::token_count::MAX_TOKENS;
use crate::load::workload::{Misfit, Workload};
use crate::model::transformer::Model;
use serde::{Deserialize, Serialize};

const MAX_SEQUENCES: u64 = 1 << 20;

/// One training step: equal sequences go forward and backward, then every parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Sequences.
    pub sequences: u64,
    /// Tokens of each.
    pub tokens: u64,
}

impl Training {
    /// A static batch of the same length. The last token of each sequence counts as output, because
    /// the other tokens predict it.
    pub(crate) fn representative_batch(&self) -> Workload {
        Workload::new(self.sequences, self.tokens.saturating_sub(1).max(1), 1)
    }

    /// The first key that does not fit `model`.
    pub(crate) fn misfit(&self, model: &Model) -> Option<Misfit> {
        if self.tokens > model.max_positions {
            let wanted = format!("{} has {} positions", model.name, model.max_positions);
            return Some(Misfit::new("training.tokens", self.tokens, wanted));
        }
        let Misfit { wanted, .. } = self.representative_batch().misfit(model)?;
        Some(Misfit::new("training.sequences", self.sequences, wanted))
    }
}

/// Reads `workload.training`; `None` if it is absent.
pub(crate) fn read_training(root: &DocumentSection<'_>) -> Result<Option<Training>, ScenarioError> {
    let Some(section) = root.section("workload.training")? else { return Ok(None) };
    section.only(&["sequences", "tokens"])?;
    let count = |key: &str, limit: u64| {
        let wanted = format!("a whole number from 1 to {limit} is wanted");
        section.count(key, limit)?.ok_or_else(|| section.missing(key, &wanted))
    };
    let training =
        Training { sequences: count("sequences", MAX_SEQUENCES)?, tokens: count("tokens", MAX_TOKENS)? };
    match root.section("workload")? {
        Some(workload) => workload.only(&["training"])?,
        None => unreachable!("the training is in it"),
    }
    Ok(Some(training))
}
