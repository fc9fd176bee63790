//! One cell of a grid: planned alone, and with homes of weights that it shares with other cells.

use crate::error::PlannerError;
use crate::grid::weight_residency::{PinnedClasses, WeightHomes, WeightResidency};
use crate::placement::Placement;
use crate::planning::Problem;
use crate::program::{BatchSteps, PhaseTimes, prefill_chunks};
use crate::search::{
    DeviceWork, Goal, PricedProblem, Restriction, SearchBudget, SearchSpace, SolveResult, device_work,
};

use hwprofiles::Ratio;
use hwprofiles::Seconds;
use scenarios::{Requirements, Slo, Workload};
use std::collections::BTreeSet;

/// Most rows of a prefill step that are tried first: longer steps are hardly faster.
const CHUNK_ROWS: u64 = 8192;

/// Restrictions whose solutions are simulated.
const RESTRICTIONS: [Restriction; 4] = [
    Restriction::NONE,
    Restriction { streamed: [true, false], ..Restriction::NONE },
    Restriction { streamed: [false, false], ..Restriction::NONE },
    Restriction { mixed: false, ..Restriction::NONE },
];

/// Simulates a placement with contention, for a workload and a prefill chunk.
pub type GridScorer<'s> = dyn Fn(&Workload, &Placement, u64) -> Result<PhaseTimes, PlannerError> + Sync + 's;

/// A batch and a prompt length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GridCell {
    /// Number of sequences.
    pub batch: u64,
    /// Prompt tokens of each sequence.
    pub prompt_tokens: u64,
    /// Weight of this cell among all cells.
    pub weight: Ratio,
}

/// A cell that is planned alone.
pub(crate) struct PlannedCell<'a> {
    pub cell: GridCell,
    pub workload: Workload,
    pub chunk: u64,
    pub goal: Goal,
    /// Its residencies are dropped to save memory; its costs stay.
    pub space: SearchSpace<'a>,
    pub residency: WeightResidency,
    pub ttft: Seconds,
    pub value: f64,
    pub bound: f64,
}

/// The result of planning a cell alone.
pub(crate) enum CellOutcome<'a> {
    /// The best solution.
    Planned(Box<PlannedCell<'a>>),
    /// The reason why there is none.
    Impossible(String),
}

/// A simulated placement with given homes of weights.
pub(crate) struct PlacedCell {
    pub placement: Placement,
    pub times: PhaseTimes,
    pub value: f64,
    /// Whether it keeps the limits.
    pub kept: bool,
}

/// A simulated cell.
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

/// Cost of a cell with shared homes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SharedHomesCost {
    /// The objective, including moves of weights.
    pub value: f64,
    /// Time to move weights there and back, if the cell uses its own homes.
    pub switch: Option<Seconds>,
}

impl<'a> PlannedCell<'a> {
    /// Plans `cell` alone.
    pub fn plan(problem: &Problem<'a>, cell: &GridCell) -> Result<CellOutcome<'a>, PlannerError> {
        let GridCell { batch, prompt_tokens, .. } = *cell;
        let workload = Workload { batch, prompt_tokens, ..problem.requirements.workload };
        let problem = Problem { requirements: Requirements { workload, ..problem.requirements }, ..*problem };
        if let Err(wrong) = workload.check(problem.cost_model.model) {
            return Ok(CellOutcome::Impossible(wrong.to_string()));
        }
        let goal = problem.goal()?;
        for chunk in chunks(&workload) {
            let mut space = SearchSpace::new(problem.cost_model, &BatchSteps::new(&workload, chunk), &goal)?;
            let SolveResult { solution: Some(solution), bound } =
                space.solve(&goal, &space.capacity(), SearchBudget::PLAN)?
            else {
                continue;
            };
            let residency = WeightResidency::from_solution(&space, &solution);
            let (ttft, value) = (solution.times()[0], solution.value);
            space.classes.iter_mut().for_each(|class| class.residency = vec![]);
            let cell = *cell;
            return Ok(CellOutcome::Planned(Box::new(Self {
                cell,
                workload,
                chunk,
                goal,
                space,
                residency,
                ttft,
                value,
                bound,
            })));
        }
        // The search for changes that would help takes long; `plan` does it.
        Ok(CellOutcome::Impossible(match problem.requirements.slo == Slo::default() {
            true => "nothing fits: plan it alone to see what would help".to_owned(),
            false => "nothing that fits keeps the limits: plan it alone to see what would help".to_owned(),
        }))
    }

    /// Cost of the cell with each of `candidates`. `None` if nothing fits there and the cell cannot
    /// switch homes.
    pub fn costs(
        &self,
        candidates: &[WeightResidency],
    ) -> Result<Vec<Option<SharedHomesCost>>, PlannerError> {
        let weight_homes_of_class: BTreeSet<&WeightHomes> =
            candidates.iter().flat_map(|r| r.0.keys()).collect();
        let pinned = PinnedClasses::new(&self.space, weight_homes_of_class.into_iter());
        let cost = |residency: &WeightResidency| -> Result<Option<SharedHomesCost>, PlannerError> {
            let within = match self.within(&pinned, residency)? {
                Some(priced_problem) => {
                    priced_problem.solve(Restriction::NONE, SearchBudget::PLAN, f64::INFINITY)?.solution
                }
                None => None,
            };
            let shared_cost = within.map(|solution| SharedHomesCost { value: solution.value, switch: None });
            Ok(match (shared_cost, self.switch(residency)) {
                (Some(shared_cost), Some(switch)) if switch.value < shared_cost.value => Some(switch),
                (Some(shared_cost), _) => Some(shared_cost),
                (None, switch) => switch,
            })
        };
        candidates.iter().map(cost).collect()
    }

    /// Cost of the cell with its own homes instead of `shared` ones.
    fn switch(&self, shared: &WeightResidency) -> Option<SharedHomesCost> {
        let there = self.residency.time_from(shared, &self.space)?;
        let back = shared.time_from(&self.residency, &self.space)?;
        let in_time = self.goal.slo.ttft.is_none_or(|limit| self.ttft + there <= limit);
        let switch = Some(there + back);
        in_time.then(|| SharedHomesCost { value: self.value + self.weigh(switch), switch })
    }

    /// Cost of a switch. Waiting for weights costs as much as waiting for the first token.
    fn weigh(&self, switch: Option<Seconds>) -> f64 {
        self.goal.measures()[0].weight[0] * switch.map_or(0.0, Seconds::get)
    }

    /// The problem with given homes of weights.
    fn within<'s>(
        &'s self,
        pinned: &'s PinnedClasses,
        residency: &WeightResidency,
    ) -> Result<Option<PricedProblem<'s>>, PlannerError> {
        let capacity = self.space.capacity();
        self.space.priced_problem_for(&pinned.groups(residency), self.goal.measures(), &capacity)
    }

    /// The best simulated placement with these homes. The solver does not see contention, so
    /// solutions under some restrictions are simulated too. `None` if nothing fits.
    fn best_within(
        &self,
        residency: &WeightResidency,
        scorer: &GridScorer<'_>,
    ) -> Result<Option<PlacedCell>, PlannerError> {
        let pinned = PinnedClasses::new(&self.space, residency.0.keys());
        let classes: Vec<_> = pinned.groups(residency).into_iter().map(|(_, class)| class).collect();
        let Some(priced_problem) = self.within(&pinned, residency)? else { return Ok(None) };
        let mut seen: Vec<Placement> = Vec::new();
        let mut best: Option<PlacedCell> = None;
        for restriction in RESTRICTIONS {
            let below = best.as_ref().filter(|best| best.kept).map_or(f64::INFINITY, |best| best.value);
            let Some(solution) = priced_problem.solve(restriction, SearchBudget::PLAN, below)?.solution
            else {
                continue;
            };
            let placement = self.space.placement_in(&classes, &solution, &self.goal);
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

    /// Simulates the cell with the shared homes, or with its own ones if it does not share.
    pub fn scored(
        &self,
        shared: &WeightResidency,
        shared_cost: SharedHomesCost,
        scorer: &GridScorer<'_>,
    ) -> Result<ScoredCell, PlannerError> {
        let own = self.best_within(&self.residency, scorer)?.ok_or_else(|| PlannerError::Solver {
            reason: "it did not find again what it had found within these homes".into(),
        })?;
        let within = match shared_cost.switch.is_none() && *shared != self.residency {
            true => self.best_within(shared, scorer)?,
            false => None,
        };
        // What was found with shared homes may be the best that was found for the cell.
        let is_better = |within: &&PlacedCell| within.kept >= own.kept && within.value < own.value;
        let best = within.as_ref().filter(is_better).unwrap_or(&own);
        let (own_value, own_times) = (best.value, best.times);
        let here = within.unwrap_or(own);
        let cost = (here.value + self.weigh(shared_cost.switch)) / own_value;
        Ok(ScoredCell {
            placement: here.placement,
            simulated: here.times,
            own: own_times,
            switch: shared_cost.switch,
            cost,
            kept: here.kept,
        })
    }

    /// The objective of simulated times.
    fn value_of(&self, placement: &Placement, times: &PhaseTimes) -> Result<f64, PlannerError> {
        let batch_steps = BatchSteps::new(&self.workload, self.chunk);
        let work = match self.goal.prices_device_work() {
            true => device_work(&self.space.cost_model, placement, &batch_steps)?,
            false => DeviceWork::default(),
        };
        Ok(self.goal.value(times, &work))
    }

    /// (weight, relative cost).
    pub fn share(&self, shared_cost: SharedHomesCost) -> (f64, f64) {
        (self.cell.weight.get(), shared_cost.value / self.value)
    }
}

/// The chunks to try in order, until one fits.
fn chunks(workload: &Workload) -> Vec<u64> {
    let mut chunks = prefill_chunks(workload);
    let few = |chunk: &u64| chunk.saturating_mul(workload.batch) <= CHUNK_ROWS;
    let first = chunks[0];
    chunks.retain(|chunk| few(chunk) || *chunk == first);
    chunks.reverse();
    chunks
}
