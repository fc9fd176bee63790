//! Simulated candidates, within a budget.

use crate::cost::footprint;
use crate::error::PlannerError;
use crate::memory::MemoryUsage;
use crate::planning::improvement::edits::ChunkedPlacement;
use crate::planning::problem::Problem;
use crate::planning::scorer::Scorer;
use crate::program::RunExtent;
use crate::search::Goal;
use rayon::prelude::*;

/// The least gain of a round that is worth another one.
const WORTH: f64 = 5e-4;

/// A simulated candidate that fits.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub candidate: ChunkedPlacement,
    /// The objective; infinite if a limit is exceeded.
    pub value: f64,
}

impl Trial {
    /// Whether its gain over `value` is worth another round.
    pub fn is_worth(&self, value: f64) -> bool {
        self.value < value * (1.0 - WORTH)
    }
}

/// Simulates candidates of one problem as long as the budget lasts.
pub(super) struct Judge<'a, 's> {
    pub problem: &'a Problem<'a>,
    pub goal: &'a Goal,
    pub scorer: &'a Scorer<'s>,
    /// Layers that may still be simulated.
    pub left: usize,
    /// Layers of these that are kept for later.
    pub reserve: usize,
}

impl Judge<'_, '_> {
    /// How many candidates of `layers` layers may be simulated now.
    pub fn affords(&self, layers: usize) -> usize {
        self.left.saturating_sub(self.reserve) / layers.max(1)
    }

    /// The bytes of each memory. `None` if bytes would have to move without a link.
    pub fn used(&self, candidate: &ChunkedPlacement) -> Option<Vec<MemoryUsage>> {
        let extent = RunExtent::from_workload(&self.problem.requirements.workload, candidate.chunk);
        footprint(self.problem.cost_model, &extent, &candidate.placement).ok()
    }

    /// The free bytes of each memory, negative where they are short. `None` if bytes would have to
    /// move without a link.
    pub fn room(&self, candidate: &ChunkedPlacement) -> Option<Vec<i128>> {
        let memories = &self.problem.cost_model.machine.memories;
        let free = |(memory, used): (&hwprofiles::Memory, MemoryUsage)| {
            i128::from(memory.capacity.value.get()) - i128::from(used.total().get())
        };
        Some(memories.iter().zip(self.used(candidate)?).map(free).collect())
    }

    pub fn fits(&self, candidate: &ChunkedPlacement) -> bool {
        self.room(candidate).is_some_and(|room| room.iter().all(|&free| free >= 0))
    }

    /// How many placements of the whole model may be simulated now.
    pub fn affords_trials(&self) -> usize {
        self.affords(self.problem.cost_model.model.layers as usize)
    }

    /// The candidates, which fit and are as few as may be simulated, with their values.
    ///
    /// # Errors
    /// A rate that is missing.
    pub fn trials(&mut self, candidates: Vec<ChunkedPlacement>) -> Result<Vec<Trial>, PlannerError> {
        self.left -= candidates.len() * self.problem.cost_model.model.layers as usize;
        let trial = |candidate: ChunkedPlacement| -> Result<Option<Trial>, PlannerError> {
            let value = self.value(&candidate, true)?;
            Ok(value.map(|value| Trial { candidate, value }))
        };
        let trials = candidates.into_par_iter().map(trial);
        Ok(trials.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// The objective; infinite if `within_limits` and it exceeds one. `None` if bytes would have to
    /// move without a link.
    ///
    /// # Errors
    /// A rate that is missing.
    pub fn value(
        &self,
        candidate: &ChunkedPlacement,
        within_limits: bool,
    ) -> Result<Option<f64>, PlannerError> {
        match self.problem.simulated(self.goal, &candidate.placement, candidate.chunk, self.scorer) {
            Err(PlannerError::Lower(_)) => Ok(None),
            simulated => simulated.map(|(times, value)| {
                let late = within_limits && !self.goal.keeps(&times);
                Some(if late { f64::INFINITY } else { value })
            }),
        }
    }
}
