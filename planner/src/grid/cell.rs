//! One cell of a grid: planned alone, and within homes of weights that it shares with other cells.

use crate::error::PlannerError;

use crate::grid::weight_residency::{PinnedClasses, WeightHomes, WeightResidency};
use crate::placement::Placement;
use crate::planning::Problem;
use crate::program::PhaseTimes;
use crate::program::{BatchSteps, prefill_chunks};
use crate::search::PricedProblem;
use crate::search::{Goal, work};
use crate::search::{Restriction, SearchSpace};
use crate::search::{SearchBudget, SolveResult};
use hwprofiles::Ratio;
use hwprofiles::Seconds;
use scenarios::{Slo, Workload};
use std::collections::BTreeSet;

/// Rows of a prefill step beyond which one chunk is as good as another.
const CHUNK_ROWS: u64 = 8192;

/// Restrictions under which the solver's placements are simulated.
const FAMILIES: [Restriction; 4] = [
    Restriction::ALL,
    Restriction { streamed: [true, false], ..Restriction::ALL },
    Restriction { streamed: [false, false], ..Restriction::ALL },
    Restriction { mixed: false, ..Restriction::ALL },
];

/// Says what a placement will really do for a workload whose prompts enter so many tokens at a time.
pub type GridScorer<'s> = dyn Fn(&Workload, &Placement, u64) -> Result<PhaseTimes, PlannerError> + Sync + 's;

/// A batch and a prompt length, and how much it counts beside the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GridCell {
    /// Sequences.
    pub batch: u64,
    /// Prompt tokens of each.
    pub prompt_tokens: u64,
    /// Its weight.
    pub weight: Ratio,
}

/// A cell, planned alone.
pub(crate) struct PlannedCell<'a> {
    pub cell: GridCell,
    pub workload: Workload,
    pub chunk: u64,
    pub goal: Goal,
    /// Its patterns are gone: prices alone stay.
    pub space: SearchSpace<'a>,
    pub residency: WeightResidency,
    pub ttft: Seconds,
    pub value: f64,
    pub bound: f64,
}

/// A placement within some homes, simulated.
pub(crate) struct PlacedCell {
    pub placement: Placement,
    pub times: PhaseTimes,
    pub value: f64,
    /// Whether it keeps the limits.
    pub kept: bool,
}

/// A cell, simulated.
pub(crate) struct ScoredCell {
    pub placement: Placement,
    pub simulated: PhaseTimes,
    pub own: PhaseTimes,
    pub switch: Option<Seconds>,
    /// The objective ÷ that of its own placement.
    pub cost: f64,
    /// Whether it keeps the limits.
    pub kept: bool,
}

/// How a cell does within shared homes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SharedHomesCost {
    /// The objective, with the way of the weights.
    pub value: f64,
    /// Where it keeps its own homes: how long the way there and back is.
    pub switch: Option<Seconds>,
}

impl<'a> PlannedCell<'a> {
    /// The best for `cell` alone; the inner error says why there is nothing.
    pub fn new(problem: &Problem<'a>, cell: &GridCell) -> Result<Result<Self, String>, PlannerError> {
        let GridCell { batch, prompt_tokens, .. } = *cell;
        let workload = Workload { batch, prompt_tokens, ..problem.workload };
        let problem = Problem { workload, ..*problem };
        if let Err(wrong) = workload.check(problem.cost_model.model) {
            return Ok(Err(wrong.to_string()));
        }
        let goal = problem.goal()?;
        for chunk in chunks(&workload) {
            let mut space = SearchSpace::new(problem.cost_model, &BatchSteps::new(&workload, chunk), &goal)?;
            let SolveResult { chosen: Some(chosen), bound } =
                space.solve(&goal, &space.capacity(), SearchBudget::PLAN)?
            else {
                continue;
            };
            let residency = WeightResidency::from_solution(&space, &chosen);
            let (ttft, value) = (chosen.times()[0], chosen.value);
            space.stacks.iter_mut().for_each(|stack| stack.residency = vec![]);
            let cell = *cell;
            return Ok(Ok(Self { cell, workload, chunk, goal, space, residency, ttft, value, bound }));
        }
        // What would help takes a search of its own; `plan` does it.
        Ok(Err(match problem.slo == Slo::default() {
            true => "nothing fits: plan it alone to see what would help".to_owned(),
            false => "nothing that fits keeps the limits: plan it alone to see what would help".to_owned(),
        }))
    }

    /// What it costs within each of `candidates`; `None` where it can neither be served there nor switch.
    pub fn costs(
        &self,
        candidates: &[WeightResidency],
    ) -> Result<Vec<Option<SharedHomesCost>>, PlannerError> {
        let lodgings: BTreeSet<&WeightHomes> = candidates.iter().flat_map(|r| r.0.keys()).collect();
        let pinned = PinnedClasses::new(&self.space, lodgings.into_iter());
        let cost = |residency: &WeightResidency| -> Result<Option<SharedHomesCost>, PlannerError> {
            let within = match self.within(&pinned, residency)? {
                Some(priced_problem) => {
                    priced_problem.solve(Restriction::ALL, SearchBudget::PLAN, f64::INFINITY)?.chosen
                }
                None => None,
            };
            let stay = within.map(|chosen| SharedHomesCost { value: chosen.value, switch: None });
            Ok(match (stay, self.switch(residency)) {
                (Some(stay), Some(switch)) if switch.value < stay.value => Some(switch),
                (Some(stay), _) => Some(stay),
                (None, switch) => switch,
            })
        };
        candidates.iter().map(cost).collect()
    }

    /// Its own homes instead of `shared` ones.
    fn switch(&self, shared: &WeightResidency) -> Option<SharedHomesCost> {
        let there = self.residency.time_from(shared, &self.space)?;
        let back = shared.time_from(&self.residency, &self.space)?;
        let in_time = self.goal.slo.ttft.is_none_or(|limit| self.ttft + there <= limit);
        let switch = Some(there + back);
        in_time.then(|| SharedHomesCost { value: self.value + self.weigh(switch), switch })
    }

    /// What waiting for the weights adds to the objective: as much as waiting for the first token.
    fn weigh(&self, switch: Option<Seconds>) -> f64 {
        self.goal.measures()[0].weight[0] * switch.map_or(0.0, Seconds::get)
    }

    /// What can be chosen within some homes.
    fn within<'s>(
        &'s self,
        pinned: &'s PinnedClasses,
        residency: &WeightResidency,
    ) -> Result<Option<PricedProblem<'s>>, PlannerError> {
        let capacity = self.space.capacity();
        self.space.priced_problem_for(&pinned.groups(residency), self.goal.measures(), &capacity)
    }

    /// The best within these homes, simulated: the solver does not see contention, so what it finds under some
    /// restrictions is simulated as well. `None` where nothing fits.
    fn best_within(
        &self,
        residency: &WeightResidency,
        scorer: &GridScorer<'_>,
    ) -> Result<Option<PlacedCell>, PlannerError> {
        let pinned = PinnedClasses::new(&self.space, residency.0.keys());
        let stacks: Vec<_> = pinned.groups(residency).into_iter().map(|(_, stack)| stack).collect();
        let Some(priced_problem) = self.within(&pinned, residency)? else { return Ok(None) };
        let mut seen: Vec<Placement> = Vec::new();
        let mut best: Option<PlacedCell> = None;
        for restriction in FAMILIES {
            let below = best.as_ref().filter(|best| best.kept).map_or(f64::INFINITY, |best| best.value);
            let Some(chosen) = priced_problem.solve(restriction, SearchBudget::PLAN, below)?.chosen else {
                continue;
            };
            let placement = self.space.placement_in(&stacks, &chosen, &self.goal);
            if seen.contains(&placement) {
                continue;
            }
            seen.push(placement.clone());
            let times = scorer(&self.workload, &placement, self.chunk)?;
            let (kept, value) = (self.goal.keeps(&times), self.value_of(&placement, &times)?);
            if best.as_ref().is_none_or(|best| (!kept, value) < (!best.kept, best.value)) {
                best = Some(PlacedCell { placement, times, value, kept });
            }
        }
        Ok(best)
    }

    /// Simulated within the shared homes, or where it does not share them within its own.
    pub fn scored(
        &self,
        shared: &WeightResidency,
        stay: SharedHomesCost,
        scorer: &GridScorer<'_>,
    ) -> Result<ScoredCell, PlannerError> {
        let own = self.best_within(&self.residency, scorer)?.ok_or_else(|| PlannerError::Solver {
            reason: "it did not find again what it had found within these homes".into(),
        })?;
        let within = match stay.switch.is_none() && *shared != self.residency {
            true => self.best_within(shared, scorer)?,
            false => None,
        };
        let (own_value, own_times) = (own.value, own.times);
        let here = within.unwrap_or(own);
        let cost = (here.value + self.weigh(stay.switch)) / own_value;
        Ok(ScoredCell {
            placement: here.placement,
            simulated: here.times,
            own: own_times,
            switch: stay.switch,
            cost,
            kept: here.kept,
        })
    }

    /// The objective of simulated times.
    fn value_of(&self, placement: &Placement, times: &PhaseTimes) -> Result<f64, PlannerError> {
        let batch_steps = BatchSteps::new(&self.workload, self.chunk);
        let work = match self.goal.is_frugal() {
            true => work(&self.space.cost_model, placement, &batch_steps)?,
            false => [vec![], vec![]],
        };
        Ok(self.goal.value(times, &work))
    }

    /// Its weight, and what it loses.
    pub fn share(&self, stay: SharedHomesCost) -> (f64, f64) {
        (self.cell.weight.get(), stay.value / self.value)
    }
}

/// The chunks to try: one is enough unless it does not fit.
fn chunks(workload: &Workload) -> Vec<u64> {
    let mut chunks = prefill_chunks(workload);
    let few = |chunk: &u64| chunk.saturating_mul(workload.batch) <= CHUNK_ROWS;
    let first = chunks[0];
    chunks.retain(|chunk| few(chunk) || *chunk == first);
    chunks.reverse();
    chunks
}
