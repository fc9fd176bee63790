//! The best plan that an engine can run: placements are rounded to what its options express, and
//! the simulator judges what is left of them.

use crate::cost::footprint;
use crate::error::PlannerError;
use crate::export::{ExportError, ExportTarget, export};
use crate::memory::overfilled;
use crate::placement::Placement;
use crate::plan::Plan;
use crate::planning::{
    Effort, OPTIONS, Problem, ScoredPlacement, Scorer, evaluate, infeasible, is_better, plan_improved,
};
use crate::program::{RunExtent, prefill_chunks};
use std::collections::BTreeMap;

/// The best plan of those that `engine` makes of its options. Candidates are
/// the plan without an engine, the rules, and the rules with one number, each rounded to the
/// engine's options, with every size of prefill step.
///
/// # Errors
/// As [`crate::plan`]; the engine cannot run the model or the machine, or nothing that it can run
/// fits.
pub fn plan_for_engine(
    problem: &Problem<'_>,
    engine: ExportTarget,
    effort: Effort,
    scorer: &Scorer<'_>,
) -> Result<Plan, ExportError> {
    let (machine, model) = (problem.cost_model.machine, problem.cost_model.model);
    let goal = problem.goal()?;
    let best = plan_improved(problem, effort, scorer)?;
    let mut chunks = prefill_chunks(&problem.requirements.workload);
    chunks.push(best.prefill_chunk);
    let mut starts = problem.simple_placements(&goal, scorer);
    starts.insert(0, best.placement(machine, model).map_err(PlannerError::from)?);
    let mut known: Vec<(Placement, u64)> = Vec::new();
    let (mut found, mut refused): (Option<ScoredPlacement>, Option<ExportError>) = (None, None);
    for (start, &chunk) in starts.iter().flat_map(|start| chunks.iter().map(move |chunk| (start, chunk))) {
        let Ok(plan) = evaluate(problem, engine.name(), start.clone(), chunk, scorer) else { continue };
        let exported = match export(&plan, machine, model, engine) {
            Ok(exported) => exported,
            Err(error) => {
                refused = refused.or(Some(error));
                continue;
            }
        };
        let nearest = (exported.nearest, chunk);
        if known.contains(&nearest) || !fits(problem, &nearest)? {
            continue;
        }
        known.push(nearest.clone());
        let name = format!("{OPTIONS} {engine}");
        let Ok(scored) = problem.scored(&goal, &name, nearest.0, chunk, scorer) else { continue };
        if found.as_ref().is_none_or(|best| is_better(&goal, best, &scored)) {
            found = Some(scored);
        }
    }
    match (found, refused) {
        (Some(best), _) => {
            Ok(problem.finished_plan(&goal, best, None, None, BTreeMap::new(), BTreeMap::new())?)
        }
        (None, Some(error)) => Err(error),
        (None, None) => Err(infeasible(problem)?.into()),
    }
}

fn fits(problem: &Problem<'_>, (placement, chunk): &(Placement, u64)) -> Result<bool, PlannerError> {
    let extent = RunExtent::from_workload(&problem.requirements.workload, *chunk);
    let used = footprint(problem.cost_model, &extent, placement)?;
    Ok(overfilled(problem.cost_model.machine, &used).is_none())
}
