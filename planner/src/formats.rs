//! A choice among number formats: each is planned, and the best for the objective wins.

use crate::course::Course;
use crate::error::PlannerError;
use crate::goal::work;
use crate::placement::Placement;
use crate::plan::{Plan, Times};
use crate::planner::{Question, plan};
use crate::{Pricing, Scorer};
use scenarios::Formats;

/// Says what a placement will really do in the formats of a pricing, like [`Scorer`].
pub type FormatScorer<'s> = dyn Fn(Pricing<'_>, &Placement, u64) -> Result<Times, PlannerError> + Sync + 's;

/// A plan, and what came of every combination of formats.
#[derive(Debug)]
pub struct ChosenFormats {
    /// The best.
    pub plan: Plan,
    /// In the order in which they were asked for: what is expected of each, or why it cannot be planned.
    pub tried: Vec<(Formats, Result<Times, PlannerError>)>,
}

/// Plans `question` in each of `formats`, whatever its own are, and takes the plan that is best for the objective within
/// the limits; of equals the first.
///
/// # Errors
/// Those of [`plan`]; where there are several combinations, [`PlannerError::NoFormat`] says why none can be planned.
pub fn plan_among(
    question: &Question<'_>,
    formats: &[Formats],
    scorer: &FormatScorer<'_>,
) -> Result<ChosenFormats, PlannerError> {
    let goal = question.goal()?;
    let mut best: Option<(f64, Plan)> = None;
    let mut tried = Vec::new();
    for &one in formats {
        let pricing = Pricing { formats: &one, ..question.pricing };
        let question = Question { pricing, ..*question };
        let score: &Scorer<'_> = &|placement, chunk| scorer(pricing, placement, chunk);
        match plan(&question, score) {
            Ok(plan) => {
                let times = plan.predicted.simulated;
                let placement = plan.placement(pricing.machine, pricing.model)?;
                let course = Course::of(&question.workload, plan.prefill_chunk);
                let value = goal.value(&times, &work(&pricing, &placement, &course)?);
                tried.push((one, Ok(times)));
                if best.as_ref().is_none_or(|(least, _)| value < *least) {
                    best = Some((value, plan));
                }
            }
            Err(error) if formats.len() > 1 && is_of_its_formats(&error) => tried.push((one, Err(error))),
            Err(error) => return Err(error),
        }
    }
    match best {
        Some((_, plan)) => Ok(ChosenFormats { plan, tried }),
        None => {
            let failed = |(formats, result): (_, Result<_, _>)| Some((formats, result.err()?));
            Err(PlannerError::NoFormat { reasons: tried.into_iter().filter_map(failed).collect() })
        }
    }
}

/// Whether other formats may do better.
fn is_of_its_formats(error: &PlannerError) -> bool {
    matches!(error, PlannerError::Missing(_)) || error.is_infeasible()
}
