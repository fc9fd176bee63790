//! A choice among number formats and degrees of tensor parallelism: each is planned, and the best for the objective wins.

use crate::course::Course;
use crate::error::PlannerError;
use crate::goal::work;
use crate::placement::Placement;
use crate::plan::{Plan, Times};
use crate::planner::{Question, plan};
use crate::{Pricing, Scorer};
use hwprofiles::Machine;
use scenarios::Formats;
use std::fmt;

/// Says what a placement will really do in the formats of a pricing, like [`Scorer`].
pub type FormatScorer<'s> = dyn Fn(Pricing<'_>, &Placement, u64) -> Result<Times, PlannerError> + Sync + 's;

/// What may be chosen before anything is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// How many GPUs compute as one device.
    pub tensor_parallel: u64,
    /// Number formats.
    pub formats: Formats,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tensor_parallel > 1 {
            write!(f, "tensor_parallel {}, ", self.tensor_parallel)?;
        }
        self.formats.fmt(f)
    }
}

/// A plan, and what came of every combination.
#[derive(Debug)]
pub struct ChosenFormats {
    /// The best.
    pub plan: Plan,
    /// Which of the machines it is for.
    pub machine: usize,
    /// Of each machine, in the order in which they were asked for: what is expected of each format, or why it cannot be
    /// planned.
    pub tried: Vec<(Variant, Result<Times, PlannerError>)>,
}

/// Plans `question` on each of `machines` (one machine with its GPUs grouped in several ways) in each of `formats`,
/// whatever its own are, and takes the plan that is best for the objective within the limits; of equals the first.
///
/// # Errors
/// Those of [`plan`]; where there are several combinations, [`PlannerError::NoFormat`] says why none can be planned.
pub fn plan_among(
    question: &Question<'_>,
    machines: &[Machine],
    formats: &[Formats],
    scorer: &FormatScorer<'_>,
) -> Result<ChosenFormats, PlannerError> {
    let mut best: Option<(f64, usize, Plan)> = None;
    let mut tried = Vec::new();
    let all = (0..machines.len()).flat_map(|at| formats.iter().map(move |&formats| (at, formats)));
    for (at, formats) in all.clone() {
        let machine = &machines[at];
        let pricing = Pricing { machine, formats: &formats, ..question.pricing };
        let question = Question { pricing, ..*question };
        let goal = question.goal()?;
        let one = Variant { tensor_parallel: machine.tensor_parallel(), formats };
        let score: &Scorer<'_> = &|placement, chunk| scorer(pricing, placement, chunk);
        match plan(&question, score) {
            Ok(plan) => {
                let times = plan.predicted.simulated;
                let placement = plan.placement(pricing.machine, pricing.model)?;
                let course = Course::of(&question.workload, plan.prefill_chunk);
                let value = goal.value(&times, &work(&pricing, &placement, &course)?);
                tried.push((one, Ok(times)));
                if best.as_ref().is_none_or(|(least, ..)| value < *least) {
                    best = Some((value, at, plan));
                }
            }
            Err(error) if all.clone().count() > 1 && is_of_its_variant(&error) => {
                tried.push((one, Err(error)))
            }
            Err(error) => return Err(error),
        }
    }
    match best {
        Some((_, machine, plan)) => Ok(ChosenFormats { plan, machine, tried }),
        None => {
            let failed = |(variant, result): (_, Result<_, _>)| Some((variant, result.err()?));
            Err(PlannerError::NoFormat { reasons: tried.into_iter().filter_map(failed).collect() })
        }
    }
}

/// Whether other formats, or another degree, may do better.
fn is_of_its_variant(error: &PlannerError) -> bool {
    matches!(error, PlannerError::Missing(_) | PlannerError::Undivided(_)) || error.is_infeasible()
}
