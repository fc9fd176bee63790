//! The question and its answer: candidates from the integer program and the rules, simulated; the best is the plan.

use crate::cost::Pricing;
use crate::course::Course;
use crate::error::PlannerError;
use crate::infeasible::infeasible;
use crate::memory::Programs;
use crate::placement::Placement;
use crate::plan::{Plan, Prediction, Times};
use crate::roofline::Roofline;
use crate::rules::{NoRule, Rule};
use crate::solve::Effort;
use crate::space::{Family, Space, weights};
use hwprofiles::{Machine, Missing, Seconds};
use scenarios::{Formats, Model, Objective, Phase, Workload};
use std::collections::BTreeMap;

/// Says what a placement will really do: the simulator, which sees contention. Its steps are those of the workload
/// with [`crate::prefill_chunk`].
pub type Scorer<'s> = dyn Fn(&Placement, &Programs) -> Result<Times, Missing> + 's;

/// What was chosen when the solver's placement is the best.
pub const PLANNED: &str = "planned";

/// A placement that was simulated.
struct Scored {
    name: String,
    placement: Placement,
    programs: Programs,
    times: Times,
    /// The objective.
    value: f64,
}

/// Plans `workload` of `model` in `formats` on `machine`: where each matrix and the KV cache live and who computes
/// what, so that the objective is best and no memory holds more than it can.
///
/// Solutions of the integer program and the rules of [`Rule`] are scored by `scorer`; where no solution beats a
/// rule, the plan follows the rule and says so.
///
/// # Errors
/// [`PlannerError::Infeasible`] names the memory that is too small and what would help;
/// [`PlannerError::Missing`] a rate to be measured; [`PlannerError::Scenario`] a workload that makes no sense.
pub fn plan(
    machine: &Machine,
    model: &Model,
    formats: &Formats,
    workload: &Workload,
    objective: Objective,
    scorer: &Scorer<'_>,
) -> Result<Plan, PlannerError> {
    workload.check(model)?;
    let pricing = Pricing { machine, model, formats };
    let course = Course::of(workload);
    let space = Space::new(pricing, &course, objective)?;
    let weight = weights(objective, course.decodes);
    let score = |name: &str, placement: Placement| -> Result<Scored, PlannerError> {
        let programs = Programs::lower(machine, model, &placement)?;
        let times = scorer(&placement, &programs)?;
        let tpot = times.tpot.unwrap_or(Seconds::ZERO);
        let value = weight[0] * times.ttft.get() + weight[1] * tpot.get();
        Ok(Scored { name: name.to_owned(), placement, programs, times, value })
    };
    let (mut baselines, mut without) = (BTreeMap::new(), BTreeMap::new());
    let mut best: Option<Scored> = None;
    for rule in Rule::ALL {
        match rule.placement(pricing, &course.extent) {
            Ok(placement) => {
                let scored = score(rule.name(), placement)?;
                baselines.insert(scored.name.clone(), scored.times);
                best = better(best, scored);
            }
            Err(reason) => {
                without.insert(rule.name().to_owned(), reason.to_string());
            }
        }
    }
    for (value, placement) in candidates(&space)? {
        // The solver's value is what the placement takes without contention: it will not take less.
        if best.as_ref().is_some_and(|best| value >= best.value || best.placement == placement) {
            continue;
        }
        best = better(best, score(PLANNED, placement)?);
    }
    let Some(best) = best else { return Err(infeasible(pricing, workload, &space)?) };
    let predicted = Prediction {
        chosen: best.name,
        bound: bound(pricing, &course, &best.programs)?,
        simulated: best.times,
        baselines,
        without,
    };
    Plan::of(pricing, *workload, objective, course.extent.chunk, &best.placement, predicted)
}

/// The plan that follows `rule`, whatever it costs, with what `scorer` says of it.
///
/// # Errors
/// [`NoRule`] where the rule cannot be followed.
pub fn follow(
    pricing: Pricing<'_>,
    workload: &Workload,
    objective: Objective,
    rule: Rule,
    scorer: &Scorer<'_>,
) -> Result<Plan, NoRule> {
    let extent = Course::of(workload).extent;
    let placement = rule.placement(pricing, &extent)?;
    let mut plan = evaluate(pricing, workload, objective, extent.chunk, rule.name(), &placement, scorer)?;
    plan.predicted.baselines.insert(rule.name().to_owned(), plan.predicted.simulated);
    Ok(plan)
}

/// The plan of a given placement, called `name`, with what `scorer` says of it. `chunk` tokens of each sequence
/// enter in one prefill step.
///
/// # Errors
/// Where the placement does not fit, moves bytes without a link, or uses a rate that is missing.
pub fn evaluate(
    pricing: Pricing<'_>,
    workload: &Workload,
    objective: Objective,
    chunk: u64,
    name: &str,
    placement: &Placement,
    scorer: &Scorer<'_>,
) -> Result<Plan, PlannerError> {
    let course = Course::new(workload.batch, workload.prompt_tokens, workload.output_tokens, chunk);
    let programs = Programs::lower(pricing.machine, pricing.model, placement)?;
    let predicted = Prediction {
        chosen: name.to_owned(),
        bound: bound(pricing, &course, &programs)?,
        simulated: scorer(placement, &programs)?,
        baselines: BTreeMap::new(),
        without: BTreeMap::new(),
    };
    Plan::of(pricing, *workload, objective, course.extent.chunk, placement, predicted)
}

/// The better of two; of equals the first, so that a rule stays where nothing beats it.
fn better(best: Option<Scored>, next: Scored) -> Option<Scored> {
    match best {
        Some(best) if best.value <= next.value => Some(best),
        _ => Some(next),
    }
}

/// The best placement of each family with the solver's value, the most promising first, each once; all fit.
fn candidates(space: &Space<'_>) -> Result<Vec<(f64, Placement)>, PlannerError> {
    let capacity = space.capacity();
    let mut candidates: Vec<(f64, Placement)> = Vec::new();
    for family in Family::each() {
        let Some(chosen) = space.solve(family, &capacity, Effort::PLAN)? else { continue };
        let placement = space.placement(&chosen);
        if candidates.iter().all(|(_, other)| *other != placement) {
            candidates.push((chosen.value.get(), placement));
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(candidates)
}

/// The roofline of a run: the sum over its prefill steps, and a decode step in the middle of the output.
fn bound(pricing: Pricing<'_>, course: &Course, programs: &Programs) -> Result<Times, PlannerError> {
    let mut ttft = Seconds::ZERO;
    for step in course.prefill.iter().flatten() {
        ttft += Roofline::of(&pricing, programs.of(Phase::Prefill), step)?.bound().0;
    }
    let decode = Roofline::of(&pricing, programs.of(Phase::Decode), &course.decode)?.bound().0;
    Ok(Times { ttft, tpot: (course.decodes > 0).then_some(decode) })
}
