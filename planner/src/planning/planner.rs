//! The planner: simulates candidates of the integer program and of rules, and returns the best as
//! the plan.

use crate::error::PlannerError;
use crate::placement::Placement;
use crate::plan::{Identity, Plan, SearchSummary};
use crate::planning::effort::Effort;
use crate::planning::improvement::Improver;
use crate::planning::infeasible::{infeasible, too_slow};
use crate::planning::one_device::OneDevicePlan;
use crate::planning::overlap::Overlap;
use crate::planning::problem::{EDITED, ENOUGH, PLANNED, Problem, ScoredPlacement, better, is_better};
use crate::planning::scorer::Scorer;
use crate::program::{BatchSteps, PhaseTimes, prefill_chunks, small_prefill_chunks};
use crate::rules::{NoRule, Rule};
use crate::search::{Goal, MARGINS, PatternSolution, Restriction, SearchBudget, SearchSpace};

use rayon::prelude::*;
use scenarios::{Objective, Requirements, Slo, Workload};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Plans `problem`: the memory of each matrix and KV cache, the device of each computation, and the
/// tokens of a prefill step, such that the objective is best, its limits are kept and no memory is
/// overfilled.
///
/// `scorer` simulates the solutions of the integer program and the placements of each [`Rule`]. If
/// no solution beats a rule, the plan follows the rule and says so.
///
/// # Errors
/// - [`PlannerError::Infeasible`] names the memory that is too small and what would help.
/// - [`PlannerError::TooSlow`] names the limit that no placement keeps.
/// - [`PlannerError::Missing`] names a rate that was not measured.
/// - [`PlannerError::Unpriced`] names a power or a price that is missing.
/// - [`PlannerError::Scenario`] tells what is wrong with the workload.
pub fn plan(problem: &Problem<'_>, scorer: &Scorer<'_>) -> Result<Plan, PlannerError> {
    plan_with_value(problem, None, Effort::SOLVE, scorer).map(|(plan, _)| plan)
}

/// The same with a search around the best placements.
///
/// # Errors
/// As [`plan`].
pub fn plan_improved(
    problem: &Problem<'_>,
    effort: Effort,
    scorer: &Scorer<'_>,
) -> Result<Plan, PlannerError> {
    plan_with_value(problem, None, effort, scorer).map(|(plan, _)| plan)
}

/// The plan with its objective. `known` is the machine's identity, if the caller knows it.
pub(crate) fn plan_with_value(
    problem: &Problem<'_>,
    known: Option<&Identity>,
    effort: Effort,
    scorer: &Scorer<'_>,
) -> Result<(Plan, f64), PlannerError> {
    let judged = AtomicU64::new(0);
    let scorer: &Scorer<'_> = &|placement, chunk| {
        judged.fetch_add(1, Ordering::Relaxed);
        scorer(placement, chunk)
    };
    let Problem { cost_model, requirements: Requirements { workload, .. }, .. } = *problem;
    workload.check(cost_model.model)?;
    let devices = &cost_model.machine.devices;
    devices.iter().try_for_each(|device| cost_model.model.check_division(device.division()))?;
    let goal = problem.goal()?;
    if !effort.simulates_all_rules()
        && let Some(found) = problem.on_one_device(&goal, scorer)?
    {
        let OneDevicePlan { rule: (rule, times), best, least } = found;
        let (value, baselines) = (best.value, BTreeMap::from([(rule, times)]));
        let plan = problem.finished_plan(&goal, best, known, Some(least), baselines, BTreeMap::new())?;
        return Ok((plan, value));
    }
    let mut chunks = prefill_chunks(&workload);
    let space = |&chunk: &u64| SearchSpace::new(cost_model, &BatchSteps::new(&workload, chunk), &goal);
    let (rules, spaces) = rayon::join(
        || FollowedRules::new(problem, &goal, scorer),
        || chunks.par_iter().map(space).collect::<Result<Vec<_>, _>>(),
    );
    let mut spaces = spaces?;
    add_small_chunks(&workload, &mut chunks, &mut spaces, space)?;
    let FollowedRules { baselines, without, best } = rules;
    let best_rule = best.map(|best| problem.in_best_chunks(&goal, best, &chunks, scorer)).transpose()?;
    let rule = best_rule.clone();
    let draft_value = problem.draft_value(&goal);
    let mut search = CandidateSearch {
        problem,
        goal: &goal,
        scorer,
        best_rule,
        found: None,
        by_chunk: Vec::new(),
        least: f64::INFINITY,
        margin: 0.0,
        overfull: false,
        draft_value,
    };
    search.run_with_margins(&chunks, &spaces)?;
    let CandidateSearch { best_rule, found, by_chunk, least, .. } = search;
    let spaces = chunks.iter().copied().zip(&spaces).collect();
    let least = least + draft_value;
    let overlap = Overlap { problem, goal: &goal, scorer, spaces, least, draft_value };
    let solved = overlap.better(best_rule, found)?;
    let quickest = if goal.prices_device_work() { quickest(problem, &goal, scorer)? } else { None };
    let solved = quickest.into_iter().fold(solved, |best, next| better(&goal, best, next));
    let (solved, summary) = Improver::search(problem, &goal, scorer, effort, solved, &by_chunk)?;
    match solved.map(|best| rule_where_nearly_as_good(&goal, rule, best)) {
        Some(best) if goal.keeps(&best.times) => {
            let value = best.value;
            let mut plan = problem.finished_plan(&goal, best, known, Some(least), baselines, without)?;
            let judged = judged.load(Ordering::Relaxed);
            plan.predicted.search = summary.map(|summary| SearchSummary { judged, ..summary });
            Ok((plan, value))
        }
        Some(best) => Err(too_slow(problem, &goal, Some(&best.times))?),
        None if goal.slo == Slo::default() => Err(infeasible(problem)?),
        None => Err(too_slow(problem, &goal, None)?),
    }
}

/// Puts the smaller chunks before `chunks`, with their spaces, where memory is short.
fn add_small_chunks<'a>(
    workload: &Workload,
    chunks: &mut Vec<u64>,
    spaces: &mut Vec<SearchSpace<'a>>,
    space: impl Fn(&u64) -> Result<SearchSpace<'a>, PlannerError> + Sync + Send,
) -> Result<(), PlannerError> {
    if spaces[0].is_cramped() {
        let small = small_prefill_chunks(workload);
        spaces.splice(0..0, small.par_iter().map(space).collect::<Result<Vec<_>, _>>()?);
        chunks.splice(0..0, small);
    }
    Ok(())
}

/// The rule's placement instead of one that gains next to nothing on it. A rule keeps data on the
/// device that uses it, and the simulation leaves out some costs of moving data.
fn rule_where_nearly_as_good(
    goal: &Goal,
    rule: Option<ScoredPlacement>,
    best: ScoredPlacement,
) -> ScoredPlacement {
    const NEGLIGIBLE_GAIN: f64 = 5e-4;
    let nearly = |rule: &ScoredPlacement| {
        goal.keeps(&rule.times) && rule.value <= best.value * (1.0 + NEGLIGIBLE_GAIN)
    };
    rule.filter(nearly).unwrap_or(best)
}

/// The plan of least latency, if there is one, as another goal values it: what takes least time
/// often takes least energy and costs least.
fn quickest(
    problem: &Problem<'_>,
    goal: &Goal,
    scorer: &Scorer<'_>,
) -> Result<Option<ScoredPlacement>, PlannerError> {
    let requirements = Requirements { objective: Objective::Latency, ..problem.requirements };
    let Ok(plan) = plan(&Problem { requirements, ..*problem }, scorer) else { return Ok(None) };
    let placement = plan.placement(problem.cost_model.machine, problem.cost_model.model);
    let placement = placement.expect("the plan was made for this machine and model");
    problem.scored(goal, PLANNED, placement, plan.prefill_chunk, scorer).map(Some)
}

/// The plan that follows `rule`, whatever its cost.
///
/// # Errors
/// [`NoRule`] if the rule cannot be followed.
pub fn follow(problem: &Problem<'_>, rule: Rule, scorer: &Scorer<'_>) -> Result<Plan, NoRule> {
    let goal = problem.goal()?;
    let scored = problem.rule_candidate(&goal, rule, scorer)?;
    let baselines = BTreeMap::from([(scored.name.clone(), scored.times)]);
    Ok(problem.finished_plan(&goal, scored, None, None, baselines, BTreeMap::new())?)
}

/// The plan with the given placement and prefill chunks of `chunk` tokens per sequence.
///
/// # Errors
/// The placement does not fit, or a link does not exist.
pub fn evaluate(
    problem: &Problem<'_>,
    name: &str,
    placement: Placement,
    chunk: u64,
    scorer: &Scorer<'_>,
) -> Result<Plan, PlannerError> {
    let goal = problem.goal()?;
    let scored = problem.scored(&goal, name, placement, chunk, scorer)?;
    problem.finished_plan(&goal, scored, None, None, BTreeMap::new(), BTreeMap::new())
}

/// The plan with the given placement and chunks, beside all rules. Nothing is searched or proven:
/// for a plan whose file was edited.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_edited(
    problem: &Problem<'_>,
    placement: Placement,
    chunk: u64,
    scorer: &Scorer<'_>,
) -> Result<Plan, PlannerError> {
    let goal = problem.goal()?;
    let scored = problem.scored(&goal, EDITED, placement, chunk, scorer)?;
    let FollowedRules { baselines, without, .. } = FollowedRules::new(problem, &goal, scorer);
    problem.finished_plan(&goal, scored, None, None, baselines, without)
}

/// What comes of every rule.
struct FollowedRules {
    baselines: BTreeMap<String, PhaseTimes>,
    without: BTreeMap<String, String>,
    best: Option<ScoredPlacement>,
}

impl FollowedRules {
    fn new(problem: &Problem<'_>, goal: &Goal, scorer: &Scorer<'_>) -> Self {
        let follow = |&rule: &Rule| problem.rule_candidate(goal, rule, scorer);
        let followed: Vec<_> = Rule::ALL.par_iter().map(follow).collect();
        let mut rules = Self { baselines: BTreeMap::new(), without: BTreeMap::new(), best: None };
        for (rule, followed) in Rule::ALL.into_iter().zip(followed) {
            match followed {
                Ok(scored) => {
                    rules.baselines.insert(scored.name.clone(), scored.times);
                    rules.best = better(goal, rules.best, scored);
                }
                Err(reason) => {
                    rules.without.insert(rule.name().to_owned(), reason.to_string());
                }
            }
        }
        rules
    }
}

/// The search for the placement that is best in simulation.
struct CandidateSearch<'a, 's> {
    problem: &'a Problem<'a>,
    goal: &'a Goal,
    scorer: &'a Scorer<'s>,
    /// The best placement of the rules.
    best_rule: Option<ScoredPlacement>,
    /// The best placement of the solver.
    found: Option<ScoredPlacement>,
    /// The best placement of the solver with each chunk.
    by_chunk: Vec<ScoredPlacement>,
    /// A lower bound of all solutions.
    least: f64,
    /// See [`SearchSpace::capacity_less`].
    margin: f64,
    /// Whether some solution could not be dealt out over the identical GPUs.
    overfull: bool,
    /// The draft's part of the objective, which the solver does not see.
    draft_value: f64,
}

impl CandidateSearch<'_, '_> {
    /// Runs with as little room left free as lets a solution be dealt out over identical GPUs.
    fn run_with_margins(&mut self, chunks: &[u64], spaces: &[SearchSpace<'_>]) -> Result<(), PlannerError> {
        for margin in MARGINS {
            (self.margin, self.overfull) = (margin, false);
            self.run(chunks, spaces, SearchBudget::PLAN)?;
            if !self.overfull {
                break;
            }
        }
        if self.best().is_none() {
            // Solutions that barely fit need a longer search.
            self.run(chunks, spaces, SearchBudget::THOROUGH)?;
        }
        Ok(())
    }

    /// Simulates the best solution of each chunk, the most promising chunk first, then that of each
    /// restriction, until the best is good enough. The solver's value is the objective without
    /// contention, a lower bound of the simulated one, so only solutions below the best simulated
    /// value matter.
    fn run(
        &mut self,
        chunks: &[u64],
        spaces: &[SearchSpace<'_>],
        budget: SearchBudget,
    ) -> Result<(), PlannerError> {
        self.least = f64::INFINITY;
        let outlooks =
            spaces.par_iter().map(|space| space.priced_problem(self.goal, &space.capacity_less(self.margin)));
        let outlooks = outlooks.collect::<Result<Vec<_>, _>>()?;
        let mut order: Vec<(f64, usize)> = outlooks
            .iter()
            .enumerate()
            .filter_map(|(index, priced_problem)| {
                priced_problem.as_ref().map(|priced_problem| (priced_problem.floor, index))
            })
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut first: Option<f64> = None;
        for &(floor, index) in &order {
            let Some(priced_problem) = &outlooks[index] else { continue };
            // Contention depends little on the chunk: a chunk that is no better without contention
            // is no better with it.
            if first.is_some_and(|value| floor >= value) {
                self.least = self.least.min(floor);
                continue;
            }
            let solved = priced_problem.solve(Restriction::NONE, budget, self.below())?;
            self.least = self.least.min(solved.bound);
            let Some(solution) = solved.solution else { continue };
            first = Some(first.map_or(solution.value, |value| value.min(solution.value)));
            let scored = self.simulated(&spaces[index], &solution, chunks[index], Restriction::NONE)?;
            // Nothing was simulated: either there is no placement, or the only one is the best so
            // far.
            self.overfull |= scored.is_empty() && spaces[index].placements(&solution, self.goal).is_empty();
            scored.into_iter().for_each(|scored| self.take(scored));
        }
        order.retain(|&(floor, _)| self.is_open(floor));
        let alone = order.par_iter().map(|&(_, index)| self.alone(&spaces[index], chunks[index], budget));
        let alone = alone.collect::<Result<Vec<_>, _>>()?;
        alone.into_iter().flatten().for_each(|scored| self.take(scored));
        // The search has a budget, so it may find solutions under a restriction that it does not
        // find among all patterns.
        for (floor, index) in order {
            let Some(priced_problem) = &outlooks[index] else { continue };
            if !self.is_open(floor) {
                continue;
            }
            let of_family = |&restriction: &Restriction| -> Result<Vec<ScoredPlacement>, PlannerError> {
                match priced_problem.solve(restriction, budget, self.below())?.solution {
                    Some(solution) => self.simulated(&spaces[index], &solution, chunks[index], restriction),
                    None => Ok(vec![]),
                }
            };
            let scored = Restriction::CANDIDATES.par_iter().map(of_family).collect::<Result<Vec<_>, _>>()?;
            scored.into_iter().flatten().for_each(|scored| self.take(scored));
        }
        Ok(())
    }

    /// The placements of the best solution in which layers hide only their own fetches.
    fn alone(
        &self,
        space: &SearchSpace<'_>,
        chunk: u64,
        budget: SearchBudget,
    ) -> Result<Vec<ScoredPlacement>, PlannerError> {
        let Some(classes) = space.classes_alone() else { return Ok(vec![]) };
        let groups: Vec<_> = classes.iter().map(|class| (class.layers, class)).collect();
        let capacity = space.capacity_less(self.margin);
        let problem = space.priced_problem_for(&groups, self.goal.measures(), &capacity)?;
        let solved = problem.map(|problem| problem.solve(Restriction::NONE, budget, f64::INFINITY));
        match solved.transpose()?.and_then(|solved| solved.solution) {
            Some(solution) => self.simulated(space, &solution, chunk, Restriction::NONE),
            None => Ok(vec![]),
        }
    }

    fn take(&mut self, scored: ScoredPlacement) {
        match self.by_chunk.iter_mut().find(|known| known.chunk == scored.chunk) {
            Some(known) if is_better(self.goal, known, &scored) => known.clone_from(&scored),
            Some(_) => {}
            None => self.by_chunk.push(scored.clone()),
        }
        self.found = better(self.goal, self.found.take(), scored);
    }

    /// The best placement so far.
    fn best(&self) -> Option<&ScoredPlacement> {
        match (&self.best_rule, &self.found) {
            (Some(best_rule), Some(found)) if is_better(self.goal, best_rule, found) => Some(found),
            (best_rule, found) => best_rule.as_ref().or(found.as_ref()),
        }
    }

    /// Whether solutions of at least `floor` could be better than the best by more than the
    /// precision of costs.
    fn is_open(&self, floor: f64) -> bool {
        self.below() * ENOUGH > self.least.max(floor)
    }

    /// The value that a solution must beat: the best one that keeps the limits, without the draft's
    /// part.
    fn below(&self) -> f64 {
        let kept = self.best().filter(|best| self.goal.keeps(&best.times));
        kept.map_or(f64::INFINITY, |best| best.value - self.draft_value)
    }

    /// Simulates the solution's placements, except for the best so far.
    fn simulated(
        &self,
        space: &SearchSpace<'_>,
        solution: &PatternSolution,
        chunk: u64,
        restriction: Restriction,
    ) -> Result<Vec<ScoredPlacement>, PlannerError> {
        let placements = space.placements(solution, self.goal);
        let known = |placement: &Placement| {
            self.best().is_some_and(|best| best.placement == *placement && best.chunk == chunk)
        };
        let new: Vec<_> = placements.into_iter().filter(|placement| !known(placement)).collect();
        let scored = |placement| {
            match self.problem.scored(self.goal, PLANNED, placement, chunk, self.scorer) {
                // Patterns are priced separately, so there may be no link between two of them.
                Err(PlannerError::Lower(_)) => None,
                scored => Some(scored.map(|scored| ScoredPlacement { restriction, ..scored })),
            }
        };
        new.into_par_iter().filter_map(scored).collect()
    }
}
