//! What can be wrong with a plan, or with making one.

use crate::placement::PlanError;
use crate::placement::Variant;
use crate::program::LowerError;
use hwprofiles::{Bytes, Missing, Seconds};
use scenarios::{ScenarioError, Undivided};

/// Everything that the planner refuses.
#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    /// A rate that nobody measured.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Bytes must move where no link goes.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A plan used with what it was not made for.
    #[error("plan: {0}")]
    Plan(#[from] PlanError),
    /// A workload that the model cannot do.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// No placement fits, and one larger memory would be enough.
    #[error(
        "nothing fits: memory '{memory}' would have to hold at least {} and holds {capacity}: {change}",
        needed.to_file_text()
    )]
    Infeasible {
        /// The memory for which the least is missing.
        memory: String,
        /// The least that it would have to hold, to the next megabyte.
        needed: Bytes,
        /// What it holds.
        capacity: Bytes,
        /// What would help.
        change: String,
    },
    /// No placement fits, whatever the size of any one memory.
    #[error("nothing fits, however large any one of the memories is: {change}")]
    NoPlacement {
        /// What would help.
        change: String,
    },
    /// Something fits, but nothing is as fast as a limit wants.
    #[error("{what} is {limit}: {best} is the least {given}; allow more, or ask for less")]
    TooSlow {
        /// The limit's key.
        what: &'static str,
        /// The limit.
        limit: Seconds,
        /// The best that there is.
        best: Seconds,
        /// Under which condition: where everything else may take as long as it likes, or where the other limit is
        /// kept.
        given: &'static str,
    },
    /// Ranks that cannot share the model.
    #[error(transparent)]
    Undivided(#[from] Undivided),
    /// What knows one accelerator, asked of several.
    #[error(
        "{what} knows one accelerator, and the machine has {gpus}: make them one with tensor_parallel: {ranks}"
    )]
    Several {
        /// What was asked for.
        what: &'static str,
        /// How many there are.
        gpus: u64,
        /// The degree with which they are one.
        ranks: u64,
    },
    /// A draft that has no room.
    #[error("memory '{memory}' holds {capacity}: too little for the draft with its KV cache")]
    NoDraft {
        /// Which memory.
        memory: String,
        /// What it holds.
        capacity: Bytes,
    },
    /// None of several combinations of number formats, degrees of tensor parallelism and drafts can be planned.
    #[error("none of the {} can be planned: {}", named(reasons), listed(reasons))]
    NoFormat {
        /// Each, and why.
        reasons: Vec<(Variant, PlannerError)>,
    },
    /// An objective needs a number that nobody gave.
    #[error("{what} has no {key}, which the objective needs: write {wanted}")]
    Unpriced {
        /// Which device, or the scenario.
        what: String,
        /// The key that is missing.
        key: &'static str,
        /// What to write.
        wanted: &'static str,
    },
    /// A front of something else than two or three criteria.
    #[error("a front needs two or three different criteria of ttft, tpot, energy and cost")]
    Criteria,
    /// A placement needs more of a memory than it holds.
    #[error("memory '{memory}' would have to hold {needed} and holds {capacity}")]
    TooLarge {
        /// Which memory.
        memory: String,
        /// What the placement takes.
        needed: Bytes,
        /// What there is.
        capacity: Bytes,
    },
    /// A training step that nobody knows how to make.
    #[error("a training step is not made of {what}: use {instead}")]
    Untrained {
        /// Of what.
        what: String,
        /// Of what it is made.
        instead: String,
    },
    /// A matrix whose parts are none of the planner's divisions.
    #[error("{sublayer} is divided in a way that is not planned anew: plan it with `fulcrum plan`")]
    Divided {
        /// Which sublayer.
        sublayer: &'static str,
    },
    /// The solver failed; infeasible problems are not failures.
    #[error("the solver gave up: {reason}")]
    Solver {
        /// Its words.
        reason: String,
    },
}

impl PlannerError {
    /// Whether the question is understood, and has no answer on this machine.
    pub fn is_infeasible(&self) -> bool {
        match self {
            Self::Infeasible { .. } | Self::NoPlacement { .. } | Self::TooSlow { .. } => true,
            Self::NoFormat { reasons } => reasons.iter().any(|(_, reason)| reason.is_infeasible()),
            _ => false,
        }
    }
}

fn named(reasons: &[(Variant, PlannerError)]) -> &'static str {
    let grouped = reasons.iter().any(|(variant, _)| variant.tensor_parallel > 1 || variant.draft.is_some());
    if grouped { "choices" } else { "number formats" }
}

fn listed(reasons: &[(Variant, PlannerError)]) -> String {
    let reason = |(variant, reason): &(Variant, PlannerError)| format!("{variant}: {reason}");
    reasons.iter().map(reason).collect::<Vec<_>>().join("; ")
}
