//! The choice among number formats, degrees of tensor parallelism and drafts: plans each
//! combination and keeps the best.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::{IdenticalGpus, Variant};
use crate::plan::{Identity, Plan};
use crate::planning::draft::{DraftModel, DraftPlan};
use crate::planning::effort::Effort;
use crate::planning::forced::ForcedPlacement;
use crate::planning::planner::plan_with_value;
use crate::planning::problem::Problem;
use crate::planning::scorer::{FormatScorer, Scorer};
use crate::program::PhaseTimes;

use hwprofiles::{DeviceId, Machine};
use scenarios::{Formats, Requirements, Speculation, Workload};

/// The best plan, and the outcome of every combination.
#[derive(Debug)]
pub struct BestVariant {
    /// The best plan.
    pub plan: Plan,
    /// Index of its machine.
    pub machine: usize,
    /// For each combination the expected times, or the reason why it cannot be planned: machine by
    /// machine, format by format, without and with a draft.
    pub outcomes: Vec<(Variant, Result<PhaseTimes, PlannerError>)>,
}

/// Plans `problem` for each combination of `machines` (one machine with its GPUs grouped in several
/// ways), `formats`, and no draft or `draft` on each device; with `forced` that placement in place
/// of a plan. Returns the plan with the best objective within the limits, the first of equal ones.
/// `identities` are the known identities of the machines; computing one takes as long as a small
/// plan.
///
/// # Errors
/// The errors of [`crate::plan`]; with several combinations [`PlannerError::NoFormat`] with the
/// reason of each.
pub fn plan_among(
    problem: &Problem<'_>,
    machines: &[Machine],
    identities: Option<&[Identity]>,
    formats: &[Formats],
    draft: Option<DraftModel<'_>>,
    forced: Option<&ForcedPlacement>,
    effort: Effort,
    scorer: &FormatScorer<'_>,
) -> Result<BestVariant, PlannerError> {
    let mut best: Option<(f64, usize, Plan)> = None;
    let mut outcomes = Vec::new();
    let all = (0..machines.len()).flat_map(|at| formats.iter().map(move |formats| (at, formats)));
    let all: Vec<_> = all
        .flat_map(|(at, formats)| {
            proposals(&machines[at], draft).into_iter().map(move |by| (at, formats, by))
        })
        .collect();
    for (at, formats, proposal) in &all {
        let machine = &machines[*at];
        let problem =
            Problem { cost_model: CostModel { machine, formats, ..problem.cost_model }, ..*problem };
        let variant = Variant {
            division: machine.division(),
            formats: **formats,
            draft: proposal
                .map(|(_, device, speculation)| (machine.device(device).name.clone(), speculation.tokens)),
        };
        let known = identities.and_then(|identities| identities.get(*at));
        match planned(&problem, known, *proposal, (forced, effort), scorer) {
            Ok((plan, value)) => {
                outcomes.push((variant, Ok(plan.predicted.simulated)));
                if best.as_ref().is_none_or(|(least, ..)| value < *least) {
                    best = Some((value, *at, plan));
                }
            }
            Err(error) if all.len() > 1 && is_of_its_variant(&error) => outcomes.push((variant, Err(error))),
            Err(error) => return Err(error),
        }
    }
    match best {
        Some((_, machine, plan)) => Ok(BestVariant { plan, machine, outcomes }),
        None => {
            let failed = |(variant, result): (_, Result<_, _>)| Some((variant, result.err()?));
            Err(PlannerError::NoFormat { reasons: outcomes.into_iter().filter_map(failed).collect() })
        }
    }
}

/// A draft, its device, and what it proposes.
type Proposal<'a> = (DraftModel<'a>, DeviceId, Speculation);

/// No draft, then each device with each number of tokens.
fn proposals<'a>(machine: &Machine, draft: Option<DraftModel<'a>>) -> Vec<Option<Proposal<'a>>> {
    let placed_choices = |draft: DraftModel<'a>| {
        let on =
            move |device| draft.choices.iter().map(move |&speculation| Some((draft, device, speculation)));
        machine.device_ids().flat_map(on)
    };
    std::iter::once(None).chain(draft.into_iter().flat_map(placed_choices)).collect()
}

/// The plan with the draft of `proposal`, and its objective.
fn planned(
    problem: &Problem<'_>,
    known: Option<&Identity>,
    proposal: Option<Proposal<'_>>,
    (forced, effort): (Option<&ForcedPlacement>, Effort),
    scorer: &FormatScorer<'_>,
) -> Result<(Plan, f64), PlannerError> {
    let plan = |problem: &Problem<'_>, score: &Scorer<'_>| match forced {
        Some(forced) => problem.forced_plan(forced, known, score),
        None => plan_with_value(problem, known, effort, score),
    };
    let Some((draft, device, speculation)) = proposal else {
        return plan(problem, &*scorer(problem.cost_model, problem.requirements.workload));
    };
    let machine = problem.cost_model.machine;
    let gpus = IdenticalGpus::from_machine(machine).count();
    if gpus > 1 {
        return Err(PlannerError::Several { what: "a draft", gpus, ranks: gpus });
    }
    let workload = Workload { speculation: Some(speculation), ..problem.requirements.workload };
    let drafting = CostModel { model: draft.model, ..problem.cost_model };
    let Some((beside, left)) = DraftPlan::new(drafting, device, &workload, scorer)? else {
        let device = machine.device(device);
        let memory = machine.memory(device.memory);
        return Err(PlannerError::NoDraft { memory: memory.name.clone(), capacity: memory.capacity.value });
    };
    let cost_model = CostModel { machine: &left, ..problem.cost_model };
    plan(
        &Problem {
            cost_model,
            draft: Some(&beside),
            requirements: Requirements { workload, ..problem.requirements },
        },
        &*scorer(cost_model, workload),
    )
}

/// Whether another combination may succeed.
fn is_of_its_variant(error: &PlannerError) -> bool {
    matches!(
        error,
        PlannerError::Missing(_)
            | PlannerError::Undivided(_)
            | PlannerError::NoDraft { .. }
            | PlannerError::Several { .. }
    ) || error.is_infeasible()
}
