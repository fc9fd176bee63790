//! Plans whose placement is forced.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::{Placement, PlanError};
use crate::plan::{Identity, Plan};
use crate::planning::offload_plan::fitting;
use crate::planning::problem::{Problem, ScoredPlacement};
use crate::planning::scorer::Scorer;
use crate::planning::tensor_split::{MemoryRoom, filled_splits};
use crate::rules::{Offload, Rule};
use crate::search::Goal;
use hwprofiles::{Bytes, Machine};
use scenarios::{Model, OffloadOptions, Requirements, Workload};
use std::collections::BTreeMap;

/// Name of a forced placement in predictions, with its rule where there is one.
pub const FORCED: &str = "forced placement";

/// A placement that is followed instead of planned.
#[derive(Debug, Clone, PartialEq)]
pub enum ForcedPlacement {
    /// That of an engine's options.
    Offload(OffloadOptions),
    /// That of a rule.
    Rule(Rule),
    /// That of another plan.
    Plan(Box<Plan>),
}

impl ForcedPlacement {
    /// Checks it against a machine and a model, without counting bytes.
    ///
    /// # Errors
    /// It names something that machine or model do not have.
    pub fn check(&self, machine: &Machine, model: &Model) -> Result<(), PlanError> {
        match self {
            Self::Offload(options) => Offload::new(machine, model, options).map(|_| ()),
            Self::Rule(_) => Ok(()),
            Self::Plan(plan) => plan.placement_on(machine, model).map(|_| ()),
        }
    }
}

/// The placement of an engine's options for `workload`, and the tokens of each sequence in a step
/// of prefill. No bytes are counted.
///
/// # Errors
/// The options name something that machine or model do not have.
pub fn offloaded(
    machine: &Machine,
    model: &Model,
    options: &OffloadOptions,
    workload: &Workload,
) -> Result<(Placement, u64), PlanError> {
    let offload = Offload::new(machine, model, options)?;
    Ok((offload.placement(workload), offload.chunk(workload)))
}

impl Problem<'_> {
    /// The plan of a forced placement, with its objective. It may break the limits of the scenario,
    /// but not the memories' capacities.
    pub(crate) fn forced_plan(
        &self,
        forced: &ForcedPlacement,
        known: Option<&Identity>,
        scorer: &Scorer<'_>,
    ) -> Result<(Plan, f64), PlannerError> {
        let goal = self.goal()?;
        let best = self.forced_candidate(&goal, forced, scorer)?;
        let value = best.value;
        let plan = self.finished_plan(&goal, best, known, None, BTreeMap::new(), BTreeMap::new());
        let unfit = |error| match error {
            PlannerError::TooLarge { memory, needed, capacity } => PlannerError::ForcedTooLarge {
                memory,
                needed,
                capacity,
                short: needed.saturating_sub(capacity),
                split: self.fitting_split(forced),
            },
            other => other,
        };
        Ok((plan.map_err(unfit)?, value))
    }

    /// A `tensor_split` with which forced options fit, where that is what they lack.
    fn fitting_split(&self, forced: &ForcedPlacement) -> Option<Vec<u64>> {
        let ForcedPlacement::Offload(options) = forced else { return None };
        let room = |memory| MemoryRoom {
            capacity: self.cost_model.machine.memory(memory).capacity.value,
            kept_free: Bytes::ZERO,
        };
        let splits = filled_splits(self.cost_model, options, &self.requirements.workload, &room);
        Some(splits.into_iter().find(|options| fitting(self, options).is_some())?.tensor_split)
    }

    fn forced_candidate(
        &self,
        goal: &Goal,
        forced: &ForcedPlacement,
        scorer: &Scorer<'_>,
    ) -> Result<ScoredPlacement, PlannerError> {
        let CostModel { machine, model, .. } = self.cost_model;
        let Requirements { workload, .. } = self.requirements;
        let scored = |placement: Placement, chunk| self.scored(goal, FORCED, placement, chunk, scorer);
        match forced {
            ForcedPlacement::Offload(options) => {
                let offload = Offload::new(machine, model, options)?;
                scored(offload.placement(&workload), offload.chunk(&workload))
            }
            ForcedPlacement::Plan(plan) => {
                let chunk = plan.prefill_chunk.min(workload.prompt_tokens);
                scored(plan.placement_on(machine, model)?, chunk)
            }
            ForcedPlacement::Rule(rule) => {
                let followed = self.rule_candidate(goal, *rule, scorer);
                let followed = followed.map_err(|reason| PlannerError::Unfollowed {
                    rule: rule.name(),
                    reason: reason.to_string(),
                })?;
                Ok(ScoredPlacement { name: format!("{FORCED} ({})", rule.name()), ..followed })
            }
        }
    }
}
