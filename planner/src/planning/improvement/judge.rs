//! Simulated candidates, within a budget.

use crate::cost::Footprints;
use crate::error::PlannerError;
use crate::memory::{MemoryUsage, overfilled};
use crate::placement::LayerPlacement;
use crate::planning::improvement::edits::{ChunkedPlacement, LayerSet, Order};
use crate::planning::problem::{Problem, ScoredPlacement};
use crate::planning::scorer::Scorer;
use crate::program::RunExtent;
use crate::search::Goal;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    pub fn from_scored(scored: &ScoredPlacement) -> Self {
        let ScoredPlacement { placement, chunk, value, .. } = scored;
        let candidate = ChunkedPlacement { placement: placement.clone(), chunk: *chunk };
        Self { candidate, value: *value }
    }

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
    /// The memory of placements, by their prefill chunk.
    footprints: Mutex<FxHashMap<u64, Arc<Footprints<'a>>>>,
}

impl<'a, 's> Judge<'a, 's> {
    /// A judge that may simulate `left` layers.
    pub fn new(problem: &'a Problem<'a>, goal: &'a Goal, scorer: &'a Scorer<'s>, left: usize) -> Self {
        Self { problem, goal, scorer, left, reserve: 0, footprints: Mutex::default() }
    }

    /// How many candidates of `layers` layers may be simulated now.
    pub fn affords(&self, layers: usize) -> usize {
        self.left.saturating_sub(self.reserve) / layers.max(1)
    }

    /// The bytes of each memory. `None` if bytes would have to move without a link.
    pub fn used(&self, candidate: &ChunkedPlacement) -> Option<Vec<MemoryUsage>> {
        self.footprints(candidate.chunk).usage(&candidate.placement).ok()
    }

    fn footprints(&self, chunk: u64) -> Arc<Footprints<'a>> {
        let Problem { cost_model, requirements, .. } = self.problem;
        let new = || {
            let extent = RunExtent::from_workload(&requirements.workload, chunk);
            Arc::new(Footprints::new(*cost_model, &extent))
        };
        let mut known = self.footprints.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(chunk).or_insert_with(new).clone()
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

    /// Whether `candidate` fits with `to` in place of `count` of the layers of `set`. `layers` are
    /// its different layers, each with its number.
    pub fn fits_with(
        &self,
        candidate: &ChunkedPlacement,
        layers: &[(&LayerPlacement, u64)],
        (set, count): (&LayerSet, usize),
        to: &LayerPlacement,
    ) -> bool {
        let layers = exchanged(layers, (&set.layer, count as u64), to);
        match self.footprints(candidate.chunk).usage_of_layers(&candidate.placement, &layers) {
            Some(used) => overfilled(self.problem.cost_model.machine, &used).is_none(),
            None => self.fits(&candidate.with_layers(&set.some(count, Order::Spread), to)),
        }
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

/// Different layers with their numbers, with `to` in place of `count` of `from`: at the place of
/// whichever of the two comes first, so that the order of their kinds stays.
fn exchanged<'l>(
    layers: &[(&'l LayerPlacement, u64)],
    (from, count): (&LayerPlacement, u64),
    to: &'l LayerPlacement,
) -> Vec<(&'l LayerPlacement, u64)> {
    let mut exchanged = Vec::with_capacity(layers.len() + 1);
    let mut known = layers.iter().find(|(layer, _)| *layer == to).map_or(0, |(_, known)| *known) + count;
    for &(layer, number) in layers {
        let left = if layer == from { number - count } else { number };
        if (layer == from || layer == to) && known > 0 {
            exchanged.push((to, std::mem::take(&mut known)));
        }
        if layer != to && left > 0 {
            exchanged.push((layer, left));
        }
    }
    exchanged
}

#[cfg(test)]
mod tests {
    use super::exchanged;
    use crate::memory::different_layers;
    use crate::placement::{LayerPlacement, Placement};
    use crate::planning::improvement::edits::{ChunkedPlacement, LayerSet, Order};
    use hwprofiles::{DeviceId, MemoryId};
    use proptest::prelude::*;
    use scenarios::Model;
    use std::collections::HashMap;

    fn numbers<'l>(layers: &[(&'l LayerPlacement, u64)]) -> HashMap<&'l LayerPlacement, u64> {
        let numbers: HashMap<_, _> = layers.iter().copied().collect();
        assert_eq!(numbers.len(), layers.len(), "each different layer is there once");
        numbers
    }

    proptest! {
        #[test]
        fn an_exchange_of_numbers_is_that_of_the_layers(
            homes in prop::collection::vec(0_usize..4, 32),
            [from, to] in prop::array::uniform2(0_usize..4),
            count in 0_usize..32,
        ) {
            let model = Model::preset("llama-3.1-8b").unwrap();
            let of = |memory| Placement::uniform(&model, DeviceId(0), MemoryId(memory));
            let kinds: Vec<LayerPlacement> = (0..4).map(|memory| of(memory).layers[0].clone()).collect();
            let layers = homes.iter().map(|&home| kinds[home].clone()).collect();
            let before = ChunkedPlacement { placement: Placement { layers, ..of(0) }, chunk: 1 };
            let sets = LayerSet::all(&before.placement);
            let set = sets.iter().find(|set| set.layer == kinds[from]);
            prop_assume!(from != to && set.is_some());
            let set = set.unwrap();
            let count = count.min(set.members.len());
            let after = before.with_layers(&set.some(count, Order::Spread), &kinds[to]);
            let known = different_layers(&before.placement);
            let exchanged = exchanged(&known, (&set.layer, count as u64), &kinds[to]);
            prop_assert_eq!(numbers(&exchanged), numbers(&different_layers(&after.placement)));
        }
    }
}
