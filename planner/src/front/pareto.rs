//! Pareto fronts: placements of one problem such that no other is at least as good in every
//! criterion and better in one.
//!
//! The method is ε-constraint: one criterion, with a small weight on the others, is minimised under
//! limits on the others, so every result is undominated. The limit then falls below the value
//! found, until nothing keeps it. With three criteria, the front of two is found under each limit
//! of the third. It stays the same until the limit passes the largest third value on it, which is
//! the next limit. This is exact where each program is solved to the end; for large ones each point
//! states how much is proven.

use super::label::placement_label;
use super::tradeoff::{self, Solver, Tradeoff};
use crate::error::PlannerError;
use crate::planning::{Problem, Scorer};
use crate::planning::{infeasible, too_slow};
use crate::program::PhaseTimes;
use crate::program::{BatchSteps, prefill_chunks};
use crate::search::Criterion;
use crate::search::{Goal, device_work};
use crate::search::{Measure, SearchBudget, SolveResult};
use crate::search::{Restriction, SearchSpace};
use hwprofiles::{Dollars, Joules, Ratio};
use scenarios::{Objective, Slo};
use serde::Serialize;

/// The share of its usual value by which a criterion may exceed its minimum where the others gain
/// more.
const TIE: f64 = 1e-4;

/// The search budget of each point.
const THOROUGH: SearchBudget = SearchBudget { all: true, ..SearchBudget::PLAN };

/// The criteria of one placement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PointCriteria {
    /// Its times.
    pub times: PhaseTimes,
    /// Energy per output token, where the power of each device is known.
    pub energy_per_token: Option<Joules>,
    /// Cost per output token, where prices are known.
    pub cost_per_token: Option<Dollars>,
}

/// One placement of the front.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FrontPoint {
    /// The devices of its layers in decode, in a few words.
    pub placement: String,
    /// Tokens per sequence that enter in one prefill step.
    pub prefill_chunk: u64,
    /// Criteria without contention, as the solver compares them.
    pub bound: PointCriteria,
    /// Simulated criteria.
    pub simulated: PointCriteria,
    /// The proven share: within the limits of its search, nothing has a value (with the small
    /// weight on the other criteria) below this share of its own.
    pub proven: Option<Ratio>,
    /// Whether, simulated, another point of the front is nowhere worse and somewhere better.
    pub beaten: bool,
}

/// The front of some criteria, ascending in the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Front {
    /// The criteria.
    pub criteria: Vec<Criterion>,
    /// The points.
    pub points: Vec<FrontPoint>,
}

impl PointCriteria {
    /// The value of one criterion in seconds, joules or dollars; NaN where it is not known.
    pub(super) fn value(&self, criterion: Criterion) -> f64 {
        match criterion {
            Criterion::Ttft => self.times.ttft.get(),
            Criterion::Tpot => self.times.tpot.map_or(0.0, |tpot| tpot.get()),
            Criterion::Energy => self.energy_per_token.map_or(f64::NAN, Joules::get),
            Criterion::Cost => self.cost_per_token.map_or(f64::NAN, Dollars::get),
        }
    }
}

/// The front of `problem` over two or three different `criteria` within its limits, without regard
/// to its objective, with about `points` points (at least 2). Limits fall by 1 / (points − 1) of
/// the distance between the ends. With two criteria, an undominated placement that is left out has
/// a point that is worse only in the second criterion, by at most that step. With three, there are
/// √points slices of √points points. Each point is simulated by `scorer`.
///
/// # Errors
/// As [`crate::plan`]; [`PlannerError::Criteria`] where the criteria are not two or three different
/// ones.
pub fn front(
    problem: &Problem<'_>,
    criteria: &[Criterion],
    points: usize,
    scorer: &Scorer<'_>,
) -> Result<Front, PlannerError> {
    let different = |(at, criterion)| !criteria[..at].contains(criterion);
    if !(2..=3).contains(&criteria.len()) || !criteria.iter().enumerate().all(different) {
        return Err(PlannerError::Criteria);
    }
    problem.requirements.workload.check(problem.cost_model.model)?;
    let goal = goal(problem, criteria)?;
    let chunks = prefill_chunks(&problem.requirements.workload);
    let batch_steps = |chunk: u64| BatchSteps::new(&problem.requirements.workload, chunk);
    let spaces = chunks.iter().map(|&chunk| SearchSpace::new(problem.cost_model, &batch_steps(chunk), &goal));
    let spaces: Vec<_> = spaces.collect::<Result<_, _>>()?;
    let solver = |space| -> Box<Solver<'_>> { Box::new(move |measures| solve(space, measures)) };
    let unsolved =
        || if goal.slo == Slo::default() { infeasible(problem) } else { too_slow(problem, &goal, None) };
    let solvers = spaces.iter().map(solver).collect();
    let measures = criteria.iter().map(|&criterion| goal.criterion_measure(criterion)).collect();
    let limits = goal.measures().split_off(1);
    let Some(tradeoff) = Tradeoff::new(solvers, measures, limits, TIE)? else { return Err(unsolved()?) };
    let mut found = Vec::new();
    for compromise in tradeoff.front(points.max(2))? {
        let (space, chunk) = (&spaces[compromise.solver], chunks[compromise.solver]);
        let solution = &compromise.solution;
        let [ttft, tpot] = solution.times();
        let bound =
            PhaseTimes { ttft, tpot: (problem.requirements.workload.output_tokens > 1).then_some(tpot) };
        let mut best: Option<(f64, FrontPoint)> = None;
        // Runs of layers in one piece and dealt out evenly: the simulator decides which order
        // suffers less from contention.
        for placement in space.placements(solution, &goal) {
            let work = device_work(&problem.cost_model, &placement, &batch_steps(chunk))?;
            let taken = |times: PhaseTimes| PointCriteria {
                times,
                energy_per_token: goal.energy(&times, &work),
                cost_per_token: goal.cost(&times, &work),
            };
            let point = FrontPoint {
                placement: placement_label(problem.cost_model.machine, &placement),
                prefill_chunk: chunk,
                bound: taken(bound),
                simulated: taken(scorer(&placement, chunk)?),
                proven: Ratio::new((compromise.bound / solution.value).min(1.0)),
                beaten: false,
            };
            let above =
                |&c: &Criterion| point.simulated.value(c) / point.bound.value(c).max(f64::MIN_POSITIVE);
            let loss = criteria.iter().map(above).sum();
            if best.as_ref().is_none_or(|(least, _)| loss < *least) {
                best = Some((loss, point));
            }
        }
        found.extend(best.map(|(_, point)| point));
    }
    mark_beaten(&mut found, criteria);
    Ok(Front { criteria: criteria.to_vec(), points: found })
}

fn solve(space: &SearchSpace<'_>, measures: Vec<Measure>) -> Result<SolveResult, PlannerError> {
    let groups: Vec<_> = space.classes.iter().map(|class| (class.layers, class)).collect();
    match space.priced_problem_for(&groups, measures, &space.capacity())? {
        Some(priced_problem) => priced_problem.solve(Restriction::NONE, THOROUGH, f64::INFINITY),
        None => Ok(SolveResult::NOTHING),
    }
}

/// A goal whose space keeps everything that any of the criteria may need.
fn goal(problem: &Problem<'_>, criteria: &[Criterion]) -> Result<Goal, PlannerError> {
    let has = |criterion| criteria.contains(&criterion);
    let objective = match () {
        () if has(Criterion::Cost) => Objective::Cost,
        () if has(Criterion::Energy) => Objective::Energy,
        () => Objective::Latency,
    };
    Goal::new(
        problem.cost_model.machine,
        &problem.requirements.workload,
        objective,
        problem.requirements.slo,
        &problem.requirements.costs,
    )
}

fn mark_beaten(points: &mut [FrontPoint], criteria: &[Criterion]) {
    let values = |point: &FrontPoint| criteria.iter().map(|&c| point.simulated.value(c)).collect::<Vec<_>>();
    let all: Vec<_> = points.iter().map(values).collect();
    for (own, point) in all.iter().zip(points) {
        point.beaten = all.iter().any(|other| tradeoff::dominates(other, own, 0.0));
    }
}
