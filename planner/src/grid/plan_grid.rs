//! Plans for many batches and prompt lengths at once.
//!
//! Moving weights between batches takes too long, so the homes of weights are chosen once for all
//! cells. The home of KV, the devices of each phase and the prefill chunk are chosen for each cell.
//!
//! Each cell is first planned alone. Its value there is the reference for shared homes, and its
//! homes are a candidate for all cells. Every cell is then solved again with the homes of each
//! candidate; that is a small program in which each combination of homes is a group with a given
//! number of layers. The candidate with the least mean of value ÷ own value wins. A cell may keep
//! its own homes if moving the weights there and back costs less than sharing.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::grid::cell::{CellOutcome, GridCell, GridScorer, PlannedCell, ScoredCell, SharedHomesCost};
use crate::grid::weight_residency::WeightResidency;
use crate::placement::Placement;
use crate::plan::{CellPlan, Identity, NamedPlacement, NoPlan, PlanTable, SharingCost, TABLE_VERSION};
use crate::planning::{Problem, infeasible, too_slow};

use hwprofiles::Ratio;
use rayon::prelude::*;
use scenarios::{Requirements, Slo, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Most residencies that are tried for all cells.
const CANDIDATES: usize = 24;

/// Candidates are first compared on every seventh cell: the stride is odd, so that the sample has
/// all values of both axes. The best few are then compared on all cells.
const SAMPLE_STRIDE: usize = 7;
const FINALISTS: usize = 3;

/// Plans `cells` with the output tokens, objective and limits of `problem`, whose batch and prompt
/// length do not matter. Cells without a plan are listed with the reason.
///
/// # Errors
/// Those of [`crate::plan`]; [`PlannerError::Several`] on a machine with identical GPUs;
/// [`PlannerError::Infeasible`] or [`PlannerError::TooSlow`] if no cell can be planned.
pub fn plan_grid(
    problem: &Problem<'_>,
    cells: &[GridCell],
    scorer: &GridScorer<'_>,
) -> Result<PlanTable, PlannerError> {
    let machine = problem.cost_model.machine;
    if machine.identical_gpus().len() > 1 {
        let gpus = machine.identical_gpus().len() as u64;
        let ranks = gpus * machine.tensor_parallel();
        return Err(PlannerError::Several { what: "a table of plans", gpus, ranks });
    }
    let outcomes: Vec<_> =
        cells.par_iter().map(|cell| PlannedCell::plan(problem, cell)).collect::<Result<_, _>>()?;
    let (mut planned, mut without) = (Vec::new(), Vec::new());
    for (cell, outcome) in cells.iter().zip(outcomes) {
        let GridCell { batch, prompt_tokens, .. } = *cell;
        match outcome {
            CellOutcome::Planned(cell) => planned.push(*cell),
            CellOutcome::Impossible(reason) => without.push(NoPlan { batch, prompt_tokens, reason }),
        }
    }
    let Some((residency, shared_costs)) = shared(&planned)? else { return Err(impossible(problem, cells)?) };
    let scored: Vec<ScoredCell> = planned
        .par_iter()
        .zip(&shared_costs)
        .map(|(cell, shared_cost)| cell.scored(&residency, *shared_cost, scorer))
        .collect::<Result<_, _>>()?;
    let Some(sharing) = sharing(&planned, &shared_costs, &scored) else {
        return Err(impossible(problem, cells)?);
    };
    let mut table = PlanTable { without, ..empty_table(problem, sharing) };
    let mut placements: Vec<Placement> = vec![];
    for (planned, ScoredCell { placement, simulated, own, switch, kept, .. }) in planned.iter().zip(scored) {
        let GridCell { batch, prompt_tokens, weight } = planned.cell;
        if !kept {
            let reason = "simulated, nothing that was found keeps the limits".to_owned();
            table.without.push(NoPlan { batch, prompt_tokens, reason });
            continue;
        }
        let index = placements.iter().position(|other| *other == placement).unwrap_or_else(|| {
            placements.push(placement);
            placements.len() - 1
        });
        let (prefill_chunk, placement) = (planned.chunk, index);
        let cell =
            CellPlan { batch, prompt_tokens, weight, prefill_chunk, placement, simulated, own, switch };
        table.cells.push(cell);
    }
    let CostModel { machine, model, .. } = problem.cost_model;
    table.placements = placements.iter().map(|p| NamedPlacement::from_placement(machine, model, p)).collect();
    Ok(table)
}

/// The table of `problem` without placements and cells.
fn empty_table(problem: &Problem<'_>, sharing: SharingCost) -> PlanTable {
    let Problem { cost_model, draft: _, requirements: Requirements { workload, objective, slo, costs } } =
        *problem;
    let CostModel { machine, model, formats } = cost_model;
    PlanTable {
        table: TABLE_VERSION,
        from: None,
        machine: Identity::of_machine(machine),
        model: Identity::of_model(model),
        formats: *formats,
        output_tokens: workload.output_tokens,
        objective,
        slo,
        costs,
        sharing,
        placements: vec![],
        cells: vec![],
        without: vec![],
        digest: None,
        edited: false,
    }
}

/// The reason why the first of `cells` has no plan.
fn impossible(problem: &Problem<'_>, cells: &[GridCell]) -> Result<PlannerError, PlannerError> {
    let Some(&GridCell { batch, prompt_tokens, .. }) = cells.first() else {
        return Ok(PlannerError::NoPlacement { change: "a grid needs a cell".into() });
    };
    let workload = Workload { batch, prompt_tokens, ..problem.requirements.workload };
    let problem = Problem { requirements: Requirements { workload, ..problem.requirements }, ..*problem };
    workload.check(problem.cost_model.model)?;
    match problem.requirements.slo == Slo::default() {
        true => infeasible(&problem),
        false => too_slow(&problem, &problem.goal()?, None),
    }
}

/// The residency that is best for all cells, with the cost of each cell. All candidates are tried
/// on a sample of the cells, the best of them on all.
fn shared(
    planned: &[PlannedCell<'_>],
) -> Result<Option<(WeightResidency, Vec<SharedHomesCost>)>, PlannerError> {
    let candidates = candidates(planned);
    let all: Vec<_> = planned.iter().collect();
    if planned.len() > SAMPLE_STRIDE * 2 {
        let sample: Vec<_> = planned.iter().step_by(SAMPLE_STRIDE).collect();
        let costs = costs(&sample, &candidates)?;
        let ranks =
            (0..candidates.len()).map(|c| (mean_cost(&sample, &costs, c).unwrap_or(f64::INFINITY), c));
        let mut ranks: Vec<_> = ranks.collect();
        ranks.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let finalists: Vec<_> =
            ranks.into_iter().take(FINALISTS).map(|(_, c)| candidates[c].clone()).collect();
        if let Some(best) = best_of(&all, finalists)? {
            return Ok(Some(best));
        }
    }
    best_of(&all, candidates)
}

/// The best of some residencies. `None` if each leaves some cell without a plan.
fn best_of(
    cells: &[&PlannedCell<'_>],
    mut candidates: Vec<WeightResidency>,
) -> Result<Option<(WeightResidency, Vec<SharedHomesCost>)>, PlannerError> {
    let costs = costs(cells, &candidates)?;
    let means = (0..candidates.len()).filter_map(|c| Some((mean_cost(cells, &costs, c)?, c)));
    let Some((_, best)) = means.min_by(|a, b| a.0.total_cmp(&b.0)) else { return Ok(None) };
    let shared_costs = costs.iter().filter_map(|costs| costs[best]).collect();
    Ok(Some((candidates.swap_remove(best), shared_costs)))
}

/// Cost of each cell with each candidate.
fn costs(
    cells: &[&PlannedCell<'_>],
    candidates: &[WeightResidency],
) -> Result<Vec<Vec<Option<SharedHomesCost>>>, PlannerError> {
    cells.par_iter().map(|cell| cell.costs(candidates)).collect()
}

/// Mean cost with a candidate. `None` if a cell has no plan.
fn mean_cost(
    cells: &[&PlannedCell<'_>],
    costs: &[Vec<Option<SharedHomesCost>>],
    candidate: usize,
) -> Option<f64> {
    let shares = cells.iter().zip(costs).map(|(cell, costs)| Some(cell.share(costs[candidate]?)));
    Some(mean(shares.collect::<Option<Vec<_>>>()?.into_iter()))
}

/// The residencies of the cells, those with the largest weight first. For each memory, those with
/// the most and the fewest bytes in it come before: the one with the fewest bytes in a small memory
/// fits for every cell.
fn candidates(planned: &[PlannedCell<'_>]) -> Vec<WeightResidency> {
    let mut wanted: BTreeMap<&WeightResidency, f64> = BTreeMap::new();
    for cell in planned {
        *wanted.entry(&cell.residency).or_default() += cell.cell.weight.get();
    }
    let Some(space) = planned.first().map(|cell| &cell.space) else { return vec![] };
    let bytes: Vec<_> = wanted.keys().map(|residency| residency.bytes(space)).collect();
    let mut first = BTreeSet::new();
    for memory in 0..space.cost_model.machine.memories.len() {
        let bytes_in_memory = |&index: &usize| bytes[index][memory];
        first.extend((0..bytes.len()).min_by_key(bytes_in_memory));
        first.extend((0..bytes.len()).max_by_key(bytes_in_memory));
    }
    let mut order: Vec<(bool, f64, &WeightResidency)> = wanted
        .into_iter()
        .enumerate()
        .map(|(index, (residency, weight))| (!first.contains(&index), -weight, residency))
        .collect();
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(b.2)));
    order.into_iter().take(CANDIDATES).map(|(_, _, residency)| residency.clone()).collect()
}

/// Cost of sharing in simulation, and the proven part of the solver's mean. `None` if no cell keeps
/// its limits.
fn sharing(
    planned: &[PlannedCell<'_>],
    shared_costs: &[SharedHomesCost],
    scored: &[ScoredCell],
) -> Option<SharingCost> {
    let reached = mean(planned.iter().zip(shared_costs).map(|(cell, &shared_cost)| cell.share(shared_cost)));
    let least = mean(planned.iter().map(|cell| (cell.cell.weight.get(), cell.bound / cell.value)));
    let kept = || planned.iter().zip(scored).filter(|(_, scored)| scored.kept);
    Some(SharingCost {
        slowdown: Ratio::new(mean(kept().map(|(cell, scored)| (cell.cell.weight.get(), scored.cost))))?,
        worst: Ratio::new(kept().map(|(_, scored)| scored.cost).fold(0.0, f64::max))?,
        proven: Ratio::new((least / reached).min(1.0))?,
    })
}

/// The mean of (weight, value) pairs.
fn mean(shares: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (weight, sum) =
        shares.fold((0.0, 0.0), |(weights, sum), (weight, value)| (weights + weight, sum + weight * value));
    sum / weight
}
