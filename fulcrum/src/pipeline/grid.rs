//! A table of plans: every batch and prompt length that settings list.

use super::prepared::{PreparedScenario, planner_error};
use crate::error::{Error, OrError, Result};
use hwprofiles::Ratio;
use planner::{GridCell, Placement, PlanTable};
use scenarios::{SweepAxis, Document, Grid, Setting, Workload};

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
        let Some(Workload { batch, prompt_tokens, .. }) = point.scenario.workload else {
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
