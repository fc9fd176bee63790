//! The question and its answer: candidates from the integer program and the rules, simulated; the best is the plan.

use crate::error::PlannerError;
use crate::placement::Placement;
use crate::plan::{Identity, Plan};
use crate::planning::problem::{ENOUGH, PLANNED};

use crate::planning::infeasible::{infeasible, too_slow};
use crate::planning::overlap::Overlap;
use crate::planning::problem::Problem;
use crate::planning::problem::ScoredPlacement;
use crate::planning::problem::better;
use crate::planning::problem::is_better;
use crate::planning::scorer::Scorer;

use crate::program::{BatchSteps, prefill_chunks};
use crate::rules::{NoRule, Rule};
use crate::search::Goal;
use crate::search::MARGINS;
use crate::search::{PatternSolution, SearchBudget};
use crate::search::{Restriction, SearchSpace};

use rayon::prelude::*;
use scenarios::Slo;
use std::collections::BTreeMap;

/// Plans `problem`: where each matrix and the KV cache live, who computes what, and how many tokens enter in one
/// prefill step, so that the objective is best, its limits are kept and no memory holds more than it can.
///
/// Solutions of the integer program and the rules of [`Rule`] are scored by `scorer`; where no solution beats a
/// rule, the plan follows the rule and says so.
///
/// # Errors
/// [`PlannerError::Infeasible`] names the memory that is too small and what would help;
/// [`PlannerError::TooSlow`] the limit that nothing keeps; [`PlannerError::Missing`] a rate to be measured;
/// [`PlannerError::Unpriced`] a power or a price; [`PlannerError::Scenario`] a workload that makes no sense.
pub fn plan(problem: &Problem<'_>, scorer: &Scorer<'_>) -> Result<Plan, PlannerError> {
    plan_with_value(problem, None, scorer).map(|(plan, _)| plan)
}

/// The same, with its objective; `known` is what it is to record of the machine.
pub(crate) fn plan_with_value(
    problem: &Problem<'_>,
    known: Option<&Identity>,
    scorer: &Scorer<'_>,
) -> Result<(Plan, f64), PlannerError> {
    let Problem { cost_model, workload, .. } = *problem;
    workload.check(cost_model.model)?;
    cost_model.machine.devices.iter().try_for_each(|device| match device.ranks() {
        1 => Ok(()),
        ranks => cost_model.model.check_ranks(ranks),
    })?;
    let goal = problem.goal()?;
    let chunks = prefill_chunks(&workload);
    let space = |&chunk: &u64| SearchSpace::new(cost_model, &BatchSteps::new(&workload, chunk), &goal);
    let (followed, spaces) = rayon::join(
        || Rule::ALL.par_iter().map(|&rule| problem.followed(&goal, rule, scorer)).collect::<Vec<_>>(),
        || chunks.par_iter().map(space).collect::<Result<Vec<_>, _>>(),
    );
    let spaces = spaces?;
    let (mut baselines, mut without) = (BTreeMap::new(), BTreeMap::new());
    let mut ruled: Option<ScoredPlacement> = None;
    for (rule, followed) in Rule::ALL.into_iter().zip(followed) {
        match followed {
            Ok(scored) => {
                baselines.insert(scored.name.clone(), scored.times);
                ruled = better(&goal, ruled, scored);
            }
            Err(reason) => {
                without.insert(rule.name().to_owned(), reason.to_string());
            }
        }
    }
    let apart = problem.of_draft(&goal);
    let mut search = CandidateSearch {
        problem,
        goal: &goal,
        scorer,
        ruled,
        found: None,
        least: f64::INFINITY,
        margin: 0.0,
        crowded: false,
        apart,
    };
    for margin in MARGINS {
        (search.margin, search.crowded) = (margin, false);
        search.run(&chunks, &spaces, SearchBudget::PLAN)?;
        if !search.crowded {
            break;
        }
    }
    if search.best().is_none() {
        // What fits only just takes longer to find.
        search.run(&chunks, &spaces, SearchBudget::THOROUGH)?;
    }
    let CandidateSearch { ruled, found, least, .. } = search;
    let spaces = chunks.iter().copied().zip(&spaces).collect();
    let least = least + apart;
    let overlap = Overlap { problem, goal: &goal, scorer, spaces, least, apart };
    match overlap.better(ruled, found)? {
        Some(best) if goal.keeps(&best.times) => {
            let value = best.value;
            Ok((problem.answer(&goal, best, known, Some(least), baselines, without)?, value))
        }
        Some(best) => Err(too_slow(problem, &goal, Some(&best.times))?),
        None if goal.slo == Slo::default() => Err(infeasible(problem)?),
        None => Err(too_slow(problem, &goal, None)?),
    }
}

/// The plan that follows `rule`, whatever it costs, with what `scorer` says of it.
///
/// # Errors
/// [`NoRule`] where the rule cannot be followed.
pub fn follow(problem: &Problem<'_>, rule: Rule, scorer: &Scorer<'_>) -> Result<Plan, NoRule> {
    let goal = problem.goal()?;
    let scored = problem.followed(&goal, rule, scorer)?;
    let baselines = BTreeMap::from([(scored.name.clone(), scored.times)]);
    Ok(problem.answer(&goal, scored, None, None, baselines, BTreeMap::new())?)
}

/// The plan that is `placement`, prefill in chunks of `chunk` tokens per sequence, with what `scorer` says of it.
///
/// # Errors
/// Where it does not fit, or bytes must move without a link.
pub fn evaluate(
    problem: &Problem<'_>,
    name: &str,
    placement: Placement,
    chunk: u64,
    scorer: &Scorer<'_>,
) -> Result<Plan, PlannerError> {
    let goal = problem.goal()?;
    let scored = problem.scored(&goal, name, placement, chunk, scorer)?;
    problem.answer(&goal, scored, None, None, BTreeMap::new(), BTreeMap::new())
}

/// The search for a placement that is better, once simulated, than the best so far.
struct CandidateSearch<'a, 's> {
    problem: &'a Problem<'a>,
    goal: &'a Goal,
    scorer: &'a Scorer<'s>,
    /// The best of the rules'.
    ruled: Option<ScoredPlacement>,
    /// The best of the solver's.
    found: Option<ScoredPlacement>,
    /// No solution is better than this.
    least: f64,
    /// See [`SearchSpace::capacity_less`].
    margin: f64,
    /// Whether some solution leaves no room on one of several devices alike.
    crowded: bool,
    /// What the solver does not see of the objective.
    apart: f64,
}

impl CandidateSearch<'_, '_> {
    /// The solver's best placement of each chunk, the most promising chunk first, then that of each family,
    /// until the best so far is good enough. The solver's value is what a placement takes without
    /// contention: it will not take less, so only what is below the best so far is looked for.
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
            // Another chunk changes contention little: where it is no better without, it is not with.
            if first.is_some_and(|value| floor >= value) {
                self.least = self.least.min(floor);
                continue;
            }
            let solved = priced_problem.solve(Restriction::ALL, budget, self.below())?;
            self.least = self.least.min(solved.bound);
            let Some(chosen) = solved.chosen else { continue };
            first = Some(first.map_or(chosen.value, |value| value.min(chosen.value)));
            let scored = self.simulated(&spaces[index], &chosen, chunks[index], Restriction::ALL)?;
            // Without a placement, or with the best so far as the only one.
            self.crowded |= scored.is_empty() && spaces[index].placements(&chosen, self.goal).is_empty();
            scored.into_iter().for_each(|scored| self.take(scored));
        }
        // The search is cut short: what it does not find of all patterns it may find of a restriction's few.
        for (floor, index) in order {
            let Some(priced_problem) = &outlooks[index] else { continue };
            if self.below() * ENOUGH <= self.least.max(floor) {
                continue;
            }
            let of_family = |&restriction: &Restriction| -> Result<Vec<ScoredPlacement>, PlannerError> {
                match priced_problem.solve(restriction, budget, self.below())?.chosen {
                    Some(chosen) => self.simulated(&spaces[index], &chosen, chunks[index], restriction),
                    None => Ok(vec![]),
                }
            };
            let scored = Restriction::RESTRICTED.par_iter().map(of_family).collect::<Result<Vec<_>, _>>()?;
            scored.into_iter().flatten().for_each(|scored| self.take(scored));
        }
        Ok(())
    }

    fn take(&mut self, scored: ScoredPlacement) {
        self.found = better(self.goal, self.found.take(), scored);
    }

    /// The best so far.
    fn best(&self) -> Option<&ScoredPlacement> {
        match (&self.ruled, &self.found) {
            (Some(ruled), Some(found)) if is_better(self.goal, ruled, found) => Some(found),
            (ruled, found) => ruled.as_ref().or(found.as_ref()),
        }
    }

    /// What a solution has to be below: the best that keeps the limits, less what the solver does not see.
    fn below(&self) -> f64 {
        let kept = self.best().filter(|best| self.goal.keeps(&best.times));
        kept.map_or(f64::INFINITY, |best| best.value - self.apart)
    }

    /// A solution's placements where they are not the best so far.
    fn simulated(
        &self,
        space: &SearchSpace<'_>,
        chosen: &PatternSolution,
        chunk: u64,
        restriction: Restriction,
    ) -> Result<Vec<ScoredPlacement>, PlannerError> {
        let placements = space.placements(chosen, self.goal);
        let known = |placement: &Placement| {
            self.best().is_some_and(|best| best.placement == *placement && best.chunk == chunk)
        };
        let new: Vec<_> = placements.into_iter().filter(|placement| !known(placement)).collect();
        let scored = |placement| {
            match self.problem.scored(self.goal, PLANNED, placement, chunk, self.scorer) {
                // Patterns are priced alone: between two of them there may be no link.
                Err(PlannerError::Lower(_)) => None,
                scored => Some(scored.map(|scored| ScoredPlacement { restriction, ..scored })),
            }
        };
        new.into_par_iter().filter_map(scored).collect()
    }
}
