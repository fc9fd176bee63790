//! The question and its answer: candidates from the integer program and the rules, simulated; the best is the plan.

use crate::cost::Pricing;
use crate::course::{Course, prefill_chunks};
use crate::error::PlannerError;
use crate::goal::{Goal, work};
use crate::infeasible::{infeasible, too_slow};
use crate::placement::Placement;
use crate::plan::{Plan, Prediction, Times};
use crate::roofline::Roofline;
use crate::rules::{NoRule, Rule};
use crate::solve::{Chosen, Effort, Outlook};
use crate::space::{Family, Space};
use hwprofiles::{Ratio, Seconds};
use scenarios::{Costs, Objective, Slo, Workload};
use std::collections::BTreeMap;

/// Says what a placement will really do when so many tokens of each sequence enter in one prefill step: the
/// simulator, which sees contention.
pub type Scorer<'s> = dyn Fn(&Placement, u64) -> Result<Times, PlannerError> + 's;

/// What was chosen when the solver's placement is the best.
pub const PLANNED: &str = "planned";

/// What is asked for: a workload of a model on a machine, and what the answer is to be best at.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Machine, model and formats.
    pub pricing: Pricing<'a>,
    /// The load.
    pub workload: Workload,
    /// What is to be best.
    pub objective: Objective,
    /// What must be kept.
    pub slo: Slo,
    /// What the objective `cost` needs to know.
    pub costs: Costs,
}

/// A placement that was simulated.
struct Scored {
    name: String,
    placement: Placement,
    chunk: u64,
    times: Times,
    work: [Vec<Seconds>; 2],
    /// The objective.
    value: f64,
}

/// A solution of the solver.
struct Candidate {
    placement: Placement,
    chunk: u64,
    /// The objective without contention.
    value: f64,
}

/// Plans `question`: where each matrix and the KV cache live, who computes what, and how many tokens enter in one
/// prefill step, so that the objective is best, its limits are kept and no memory holds more than it can.
///
/// Solutions of the integer program and the rules of [`Rule`] are scored by `scorer`; where no solution beats a
/// rule, the plan follows the rule and says so.
///
/// # Errors
/// [`PlannerError::Infeasible`] names the memory that is too small and what would help;
/// [`PlannerError::TooSlow`] the limit that nothing keeps; [`PlannerError::Missing`] a rate to be measured;
/// [`PlannerError::Unpriced`] a power or a price; [`PlannerError::Scenario`] a workload that makes no sense.
pub fn plan(question: &Question<'_>, scorer: &Scorer<'_>) -> Result<Plan, PlannerError> {
    let Question { pricing, workload, .. } = *question;
    workload.check(pricing.model)?;
    let goal = question.goal()?;
    let (mut baselines, mut without) = (BTreeMap::new(), BTreeMap::new());
    let mut best: Option<Scored> = None;
    for rule in Rule::ALL {
        match question.followed(&goal, rule, scorer) {
            Ok(scored) => {
                baselines.insert(scored.name.clone(), scored.times);
                best = better(&goal, best, scored);
            }
            Err(reason) => {
                without.insert(rule.name().to_owned(), reason.to_string());
            }
        }
    }
    let (mut candidates, mut least) = solutions(question, &goal, Effort::PLAN)?;
    if candidates.is_empty() && best.is_none() {
        // What fits only just takes longer to find.
        (candidates, least) = solutions(question, &goal, Effort::THOROUGH)?;
    }
    for candidate in candidates {
        // The solver's value is what the placement takes without contention: it will not take less.
        let beaten = |best: &Scored| candidate.value >= best.value || best.placement == candidate.placement;
        if best.as_ref().is_some_and(|best| goal.keeps(&best.times) && beaten(best)) {
            continue;
        }
        let Candidate { placement, chunk, .. } = candidate;
        best = better(&goal, best, question.scored(&goal, PLANNED, placement, chunk, scorer)?);
    }
    match best {
        Some(best) if goal.keeps(&best.times) => question.answer(&goal, best, least, baselines, without),
        Some(best) => Err(too_slow(question, &goal, Some(&best.times))?),
        None if goal.slo == Slo::default() => Err(infeasible(question)?),
        None => Err(too_slow(question, &goal, None)?),
    }
}

/// The plan that follows `rule`, whatever it costs, with what `scorer` says of it.
///
/// # Errors
/// [`NoRule`] where the rule cannot be followed.
pub fn follow(question: &Question<'_>, rule: Rule, scorer: &Scorer<'_>) -> Result<Plan, NoRule> {
    let goal = question.goal()?;
    let scored = question.followed(&goal, rule, scorer)?;
    let baselines = BTreeMap::from([(scored.name.clone(), scored.times)]);
    Ok(question.answer(&goal, scored, None, baselines, BTreeMap::new())?)
}

/// The plan that is `placement`, prefill in chunks of `chunk` tokens per sequence, with what `scorer` says of it.
///
/// # Errors
/// Where it does not fit, or bytes must move without a link.
pub fn evaluate(
    question: &Question<'_>,
    name: &str,
    placement: Placement,
    chunk: u64,
    scorer: &Scorer<'_>,
) -> Result<Plan, PlannerError> {
    let goal = question.goal()?;
    let scored = question.scored(&goal, name, placement, chunk, scorer)?;
    question.answer(&goal, scored, None, BTreeMap::new(), BTreeMap::new())
}

impl Question<'_> {
    pub(crate) fn goal(&self) -> Result<Goal, PlannerError> {
        Goal::new(self.pricing.machine, &self.workload, self.objective, self.slo, &self.costs)
    }

    /// The rule's placement at the first of its chunks at which it fits.
    fn followed(&self, goal: &Goal, rule: Rule, scorer: &Scorer<'_>) -> Result<Scored, NoRule> {
        let mut chunks = prefill_chunks(&self.workload);
        if rule.streams() {
            chunks.reverse();
        }
        let mut refused = None;
        for chunk in chunks {
            match rule.placement(self.pricing, &Course::of(&self.workload, chunk)) {
                Ok(placement) => return Ok(self.scored(goal, rule.name(), placement, chunk, scorer)?),
                Err(reason) => refused = Some(reason),
            }
        }
        Err(refused.unwrap_or(NoRule::NoDevice("prefill step")))
    }

    fn scored(
        &self,
        goal: &Goal,
        name: &str,
        placement: Placement,
        chunk: u64,
        scorer: &Scorer<'_>,
    ) -> Result<Scored, PlannerError> {
        let times = scorer(&placement, chunk)?;
        let work = work(&self.pricing, &placement, &Course::of(&self.workload, chunk))?;
        let value = goal.value(&times, &work);
        Ok(Scored { name: name.to_owned(), placement, chunk, times, work, value })
    }

    fn answer(
        &self,
        goal: &Goal,
        best: Scored,
        least: Option<f64>,
        baselines: BTreeMap<String, Times>,
        without: BTreeMap<String, String>,
    ) -> Result<Plan, PlannerError> {
        let course = Course::of(&self.workload, best.chunk);
        let predicted = Prediction {
            chosen: best.name,
            bound: Roofline::of_run(&self.pricing, &best.placement, &course)?,
            proven: least.and_then(|least| proven(least, best.value)),
            simulated: best.times,
            energy_per_token: goal.energy(&best.times, &best.work),
            cost_per_token: goal.cost(&best.times, &best.work),
            baselines,
            without,
        };
        Plan::of(self, best.chunk, &best.placement, predicted)
    }
}

/// The share of `value` that nothing goes below, `least` of it; `None` where `value` itself does, by more than the
/// middle step of the output differs from the mean one.
fn proven(least: f64, value: f64) -> Option<Ratio> {
    const ALIKE: f64 = 1.01;
    Ratio::new((least / value).min(1.0)).filter(|_| least <= ALIKE * value)
}

/// The better of two: what keeps the limits, then what is less. Of equals the first, so that a rule stays where
/// nothing beats it.
fn better(goal: &Goal, best: Option<Scored>, next: Scored) -> Option<Scored> {
    let rank = |scored: &Scored| (!goal.keeps(&scored.times), scored.value);
    match best {
        Some(best) if rank(&best) <= rank(&next) => Some(best),
        _ => Some(next),
    }
}

/// The solver's best placement for each chunk, and of each family for the best chunk, the most promising first, each
/// once; all fit and keep the limits without contention. With them, what no placement is better than.
fn solutions(
    question: &Question<'_>,
    goal: &Goal,
    effort: Effort,
) -> Result<(Vec<Candidate>, Option<f64>), PlannerError> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut least: Option<f64> = None;
    let mut best: Option<(f64, Space<'_>, Outlook, u64)> = None;
    for chunk in prefill_chunks(&question.workload) {
        let course = Course::of(&question.workload, chunk);
        let space = Space::new(question.pricing, &course, goal)?;
        let Some(outlook) = space.outlook(goal, effort)? else { continue };
        let Some(chosen) = space.all(goal, effort).solve_in(&outlook)? else { continue };
        least = Some(least.map_or(chosen.bound, |least| least.min(chosen.bound)));
        add(&space, &chosen, goal, chunk, &mut candidates);
        let value = chosen.value;
        if best.as_ref().is_none_or(|(other, ..)| value < *other) {
            best = Some((value, space, outlook, chunk));
        }
    }
    let Some((_, space, outlook, chunk)) = best else { return Ok((candidates, least)) };
    for chosen in space.solve_each(&Family::RESTRICTED, &outlook, goal, effort)? {
        add(&space, &chosen, goal, chunk, &mut candidates);
    }
    candidates.sort_by(|a, b| a.value.total_cmp(&b.value));
    Ok((candidates, least))
}

/// Adds a solution's placements, its runs of layers one after the other and dealt out, where they are new.
fn add(space: &Space<'_>, chosen: &Chosen<'_>, goal: &Goal, chunk: u64, candidates: &mut Vec<Candidate>) {
    for placement in [Some(space.placement(chosen, goal)), space.dealt(chosen, goal)].into_iter().flatten() {
        if candidates.iter().all(|other| other.placement != placement || other.chunk != chunk) {
            candidates.push(Candidate { placement, chunk, value: chosen.value });
        }
    }
}
