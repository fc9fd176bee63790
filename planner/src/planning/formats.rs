//! A choice among number formats, degrees of tensor parallelism and places of a draft: each is planned, and the best for
//! the objective wins.

use crate::cost::CostModel;
use crate::error::PlannerError;

use crate::placement::IdenticalGpus;
use crate::placement::Variant;
use crate::plan::{Identity, Plan};
use crate::planning::draft::{DraftModel, DraftPlan};
use crate::planning::planner::plan_with_value;
use crate::planning::problem::Problem;
use crate::planning::scorer::FormatScorer;
use crate::planning::scorer::Scorer;
use crate::program::PhaseTimes;
use hwprofiles::{DeviceId, Machine};
use scenarios::{Formats, Speculation, Workload};

/// A plan, and what came of every combination.
#[derive(Debug)]
pub struct ChosenFormats {
    /// The best.
    pub plan: Plan,
    /// Which of the machines it is for.
    pub machine: usize,
    /// Of each machine, in the order in which they were asked for: what is expected of each format, with and without a draft,
    /// or why it cannot be planned.
    pub tried: Vec<(Variant, Result<PhaseTimes, PlannerError>)>,
}

/// Plans `problem` on each of `machines` (one machine with its GPUs grouped in several ways) in each of `formats`,
/// whatever its own are, without a draft and with `draft` on each device; takes the plan that is best for the objective within
/// the limits, of equals the first. `identities` are what plans record of the machines, where somebody knows: finding out takes
/// as long as a small plan.
///
/// # Errors
/// Those of [`crate::plan`]; where there are several combinations, [`PlannerError::NoFormat`] says why none can be planned.
pub fn plan_among(
    problem: &Problem<'_>,
    machines: &[Machine],
    identities: Option<&[Identity]>,
    formats: &[Formats],
    draft: Option<DraftModel<'_>>,
    scorer: &FormatScorer<'_>,
) -> Result<ChosenFormats, PlannerError> {
    let mut best: Option<(f64, usize, Plan)> = None;
    let mut tried = Vec::new();
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
            tensor_parallel: machine.tensor_parallel(),
            formats: **formats,
            draft: proposal
                .map(|(_, device, speculation)| (machine.device(device).name.clone(), speculation.tokens)),
        };
        let known = identities.and_then(|identities| identities.get(*at));
        match planned(&problem, known, *proposal, scorer) {
            Ok((plan, value)) => {
                tried.push((variant, Ok(plan.predicted.simulated)));
                if best.as_ref().is_none_or(|(least, ..)| value < *least) {
                    best = Some((value, *at, plan));
                }
            }
            Err(error) if all.len() > 1 && is_of_its_variant(&error) => tried.push((variant, Err(error))),
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

/// A draft, where it is, and what it proposes.
type Proposal<'a> = (DraftModel<'a>, DeviceId, Speculation);

/// None, then each device and each number of tokens.
fn proposals<'a>(machine: &Machine, draft: Option<DraftModel<'a>>) -> Vec<Option<Proposal<'a>>> {
    let of = |draft: DraftModel<'a>| {
        let on =
            move |device| draft.choices.iter().map(move |&speculation| Some((draft, device, speculation)));
        machine.device_ids().flat_map(on)
    };
    std::iter::once(None).chain(draft.into_iter().flat_map(of)).collect()
}

/// The plan beside the draft of `proposal`, with its objective.
fn planned(
    problem: &Problem<'_>,
    known: Option<&Identity>,
    proposal: Option<Proposal<'_>>,
    scorer: &FormatScorer<'_>,
) -> Result<(Plan, f64), PlannerError> {
    let Some((draft, device, speculation)) = proposal else {
        let score: &Scorer<'_> =
            &|placement, chunk| scorer(problem.cost_model, &problem.workload, placement, chunk);
        return plan_with_value(problem, known, score);
    };
    let machine = problem.cost_model.machine;
    let gpus = IdenticalGpus::from_machine(machine).count();
    if gpus > 1 {
        return Err(PlannerError::Several { what: "a draft", gpus, ranks: gpus });
    }
    let workload = Workload { speculation: Some(speculation), ..problem.workload };
    let drafting = CostModel { model: draft.model, ..problem.cost_model };
    let Some((beside, left)) = DraftPlan::new(drafting, device, &workload, scorer)? else {
        let device = machine.device(device);
        let memory = machine.memory(device.memory);
        return Err(PlannerError::NoDraft { memory: memory.name.clone(), capacity: memory.capacity.value });
    };
    let cost_model = CostModel { machine: &left, ..problem.cost_model };
    let score: &Scorer<'_> = &|placement, chunk| scorer(cost_model, &workload, placement, chunk);
    plan_with_value(&Problem { cost_model, workload, draft: Some(&beside), ..*problem }, known, score)
}

/// Whether other formats, another degree or no draft may do better.
fn is_of_its_variant(error: &PlannerError) -> bool {
    matches!(
        error,
        PlannerError::Missing(_)
            | PlannerError::Undivided(_)
            | PlannerError::NoDraft { .. }
            | PlannerError::Several { .. }
    ) || error.is_infeasible()
}
