//! The errors of planning.

use crate::placement::PlanError;
use crate::placement::Variant;
use crate::program::LowerError;
use hwprofiles::{Bytes, MissingRate, Seconds};
use scenarios::{IndivisibleModel, ScenarioError};

/// Everything that the planner refuses.
#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    /// A rate that was not measured.
    #[error(transparent)]
    Missing(#[from] MissingRate),
    /// The placement needs a link that the machine does not have.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A plan is used with another machine or model than it was made for.
    #[error("plan: {0}")]
    Plan(#[from] PlanError),
    /// The model cannot run the workload.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// No placement fits, and one larger memory would be enough.
    #[error(
        "nothing fits: memory '{memory}' would have to hold at least {} and holds {capacity}: {change}",
        needed.to_file_text()
    )]
    Infeasible {
        /// The memory that needs the smallest increase in proportion to its capacity.
        memory: String,
        /// The capacity at which the model fits, rounded up to a megabyte, from 16 GB on to a
        /// gigabyte.
        needed: Bytes,
        /// Its capacity now.
        capacity: Bytes,
        /// Changes that make the model fit.
        change: String,
    },
    /// No placement fits, however large any single memory becomes.
    #[error("nothing fits, however large any one of the memories is: {change}")]
    NoPlacement {
        /// Changes that make the model fit.
        change: String,
    },
    /// Some placements fit, but none keeps a limit.
    #[error("{what} is {limit}: {best} is the least {given}; allow more, or ask for less")]
    TooSlow {
        /// Key of the limit.
        what: &'static str,
        /// Value of the limit.
        limit: Seconds,
        /// The shortest time that was found.
        best: Seconds,
        /// The condition under which `best` was found: without other limits, or with the other
        /// limit kept.
        given: &'static str,
    },
    /// The model cannot be divided into this number of ranks.
    #[error(transparent)]
    Undivided(#[from] IndivisibleModel),
    /// The feature supports one accelerator, and the machine has several.
    #[error(
        "{what} knows one accelerator, and the machine has {gpus}: make them one with tensor_parallel: {ranks}"
    )]
    Several {
        /// The feature.
        what: &'static str,
        /// Number of accelerators.
        gpus: u64,
        /// The degree of tensor parallelism that makes them one device.
        ranks: u64,
    },
    /// The memory of the draft's device is too small for the draft.
    #[error("memory '{memory}' holds {capacity}: too little for the draft with its KV cache")]
    NoDraft {
        /// Name of the memory.
        memory: String,
        /// Its capacity.
        capacity: Bytes,
    },
    /// No combination of number formats, tensor parallelism and draft can be planned.
    #[error("none of the {} can be planned: {}", named(reasons), listed(reasons))]
    NoFormat {
        /// Each combination with its reason.
        reasons: Vec<(Variant, PlannerError)>,
    },
    /// The objective needs a number that the input does not have.
    #[error("{what} has no {key}, which the objective needs: write {wanted}")]
    Unpriced {
        /// The device, or "the scenario".
        what: String,
        /// The missing key.
        key: &'static str,
        /// What to write there.
        wanted: &'static str,
    },
    /// A front needs two or three different criteria.
    #[error("a front needs two or three different criteria of ttft, tpot, energy and cost")]
    Criteria,
    /// A placement needs more of a memory than its capacity.
    #[error("memory '{memory}' would have to hold {needed} and holds {capacity}")]
    TooLarge {
        /// Name of the memory.
        memory: String,
        /// Bytes that the placement needs.
        needed: Bytes,
        /// Its capacity.
        capacity: Bytes,
    },
    /// A forced placement needs more of a memory than its capacity.
    #[error(
        "the forced placement does not fit: memory '{memory}' would have to hold {needed} and holds {capacity}, \
         {short} short{}",
        split_in_words(split.as_deref())
    )]
    ForcedTooLarge {
        /// Name of the memory.
        memory: String,
        /// Bytes that the placement needs.
        needed: Bytes,
        /// Its capacity.
        capacity: Bytes,
        /// Bytes that it lacks.
        short: Bytes,
        /// By GPU, the layers of a `tensor_split` with which it fits.
        split: Option<Vec<u64>>,
    },
    /// A rule that a scenario forces cannot be followed.
    #[error("placement.rule: {rule} cannot be followed: {reason}")]
    Unfollowed {
        /// Name of the rule.
        rule: &'static str,
        /// The reason.
        reason: String,
    },
    /// This training step is not supported.
    #[error("a training step is not made of {what}: use {instead}")]
    Untrained {
        /// What is not supported.
        what: String,
        /// What to use instead.
        instead: String,
    },
    /// A matrix is divided in a way that the planner does not use.
    #[error("{sublayer} is divided in a way that is not planned anew: plan it with `fulcrum plan`")]
    Divided {
        /// Name of the sublayer.
        sublayer: &'static str,
    },
    /// The solver failed. An infeasible problem is not a failure.
    #[error("the solver gave up: {reason}")]
    Solver {
        /// The solver's message.
        reason: String,
    },
}

impl PlannerError {
    /// Whether the problem is valid but has no solution on this machine.
    pub fn is_infeasible(&self) -> bool {
        match self {
            Self::Infeasible { .. }
            | Self::NoPlacement { .. }
            | Self::TooSlow { .. }
            | Self::ForcedTooLarge { .. } => true,
            Self::NoFormat { reasons } => reasons.iter().any(|(_, reason)| reason.is_infeasible()),
            _ => false,
        }
    }
}

fn split_in_words(split: Option<&[u64]>) -> String {
    split.map_or(String::new(), |split| format!("; it fits with tensor_split: {split:?}"))
}

fn named(reasons: &[(Variant, PlannerError)]) -> &'static str {
    let grouped = reasons.iter().any(|(variant, _)| variant.division.gpus() > 1 || variant.draft.is_some());
    if grouped { "choices" } else { "number formats" }
}

fn listed(reasons: &[(Variant, PlannerError)]) -> String {
    let reason = |(variant, reason): &(Variant, PlannerError)| format!("{variant}: {reason}");
    reasons.iter().map(reason).collect::<Vec<_>>().join("; ")
}
