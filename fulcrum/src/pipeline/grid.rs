//! A table of plans: every batch and prompt length that settings list.

use super::lookup::planned_for;
use super::prepared::{PreparedScenario, planner_error};
use crate::error::{Error, OrError, Result};
use hwprofiles::Ratio;
use planner::{CellPlan, CostModel, GridCell, Placement, PlanTable};
use scenarios::{Document, Grid, Setting, SweepAxis, Workload};

/// Cells that a table may have.
const MOST_CELLS: u64 = 10_000;

/// The keys that may have a list of values.
const KEYS: [&str; 2] = ["workload.batch", "workload.prompt_tokens"];

/// Plans the static batches of `document` with every batch and prompt length that `settings` list.
///
/// # Errors
/// Another key has several values, the scenario is no static batch or allows several formats, or
/// nothing fits.
pub fn plan_grid(document: Document, settings: &[Setting]) -> Result<PlanTable> {
    let several = |setting: &&Setting| setting.values.len() > 1 && !KEYS.contains(&setting.key.as_str());
    if let Some(other) = settings.iter().find(several) {
        let keys = KEYS.join(" and ");
        let message = format!("--set {other}: in a grid only {keys} can have several values");
        return Err(Error::input(message));
    }
    let axes = settings.iter().cloned().map(SweepAxis::from).collect();
    let grid = Grid::new(document, axes, MOST_CELLS).or_input()?;
    let points: Vec<_> = grid.points().collect::<Result<_, _>>().or_input()?;
    let scenario = PreparedScenario::new(&points[0].scenario)?;
    scenario.require_one_format("--grid")?;
    let cells = points.iter().map(|point| {
        let Some(Workload { batch, prompt_tokens, .. }) = point.scenario.workload.batch() else {
            return Err(Error::input(format!("--grid plans static batches: {}", KEYS.join(" and "))));
        };
        Ok(GridCell { batch, prompt_tokens, weight: Ratio::ONE })
    });
    let cells = cells.collect::<Result<Vec<_>>>()?;
    let score = |workload: &Workload, placement: &Placement, chunk: u64| {
        sim::estimate(scenario.cost_model(), placement, workload, chunk)
    };
    let table = planner::plan_grid(&scenario.problem(), &cells, &score).map_err(planner_error)?;
    tracing::info!(model = scenario.model().name, cells = table.cells.len(), "planned");
    Ok(PlanTable { from: scenario.origin, ..table })
}

/// Reads a table of plans. Where its text was edited, or another version has written it, the times
/// of its cells are predicted anew, and what only planning finds is left out: the time of each
/// cell's own best placement, and whether weights are moved.
///
/// # Errors
/// The text is no table, or it was edited and its machine or model is missing or another than it
/// was, or a placement does not fit.
pub(crate) fn read_grid(text: &str, file: &str) -> Result<PlanTable> {
    let table = PlanTable::from_yaml(text, file).or_input()?;
    if !table.edited {
        return Ok(table);
    }
    let origin = table.from.as_ref().ok_or_else(|| {
        Error::input(format!(
            "{file}: from is missing: it names the machine and the model, see `fulcrum plan --grid`"
        ))
    })?;
    let (machine, model) = planned_for(origin)?;
    let (table, placements) = PlanTable::read(text, file, &machine, &model).or_input()?;
    let cost_model = CostModel { machine: &machine, model: &model, formats: &table.formats };
    let predicted = |cell: &CellPlan| {
        let (placement, workload) = (&placements[cell.placement], table.workload(cell));
        let simulated = sim::estimate(cost_model, placement, &workload, cell.prefill_chunk).or_input()?;
        Ok(CellPlan { simulated, own: simulated, switch: None, ..*cell })
    };
    let cells = table.cells.iter().map(predicted).collect::<Result<_>>()?;
    Ok(PlanTable { cells, ..table })
}
