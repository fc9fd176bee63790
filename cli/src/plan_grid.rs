//! A table of plans: from lists of settings to cells, and what to show of it.

use crate::exit::{Failure, Outcome, Sort};
use crate::pipeline::{Question, sorted};
use anyhow::anyhow;
use hwprofiles::Ratio;
use planner::{Cell, CellPlan, Placement, PlanTable};
use scenarios::{Axis, Document, Grid, Setting, Workload};
use std::fmt::Write;
use std::path::Path;

/// Cells that a table may have.
const CELLS: u64 = 10_000;
/// Columns of a terminal.
const WIDTH: usize = 80;
/// What may have a list of values.
const AXES: [&str; 2] = ["workload.batch", "workload.prompt_tokens"];

/// Plans every batch and prompt length that `settings` list.
pub fn plan(scenario: &Path, settings: &[Setting]) -> Outcome<PlanTable> {
    if let Some(other) = settings.iter().find(|s| s.values.len() > 1 && !AXES.contains(&s.key.as_str())) {
        let axes = AXES.join(" and ");
        return Err(Failure::Input(anyhow!("--set {other}: in a grid only {axes} can have several values")));
    }
    let axes = settings.iter().cloned().map(Axis::from).collect();
    let grid = Grid::new(Document::from_file(scenario).or_input()?, axes, CELLS).or_input()?;
    let points: Vec<_> = grid.points().collect::<Result<_, _>>().or_input()?;
    let question = Question::of(&points[0].scenario)?.in_one_format("--grid")?;
    let cells = points.iter().map(|point| {
        let Some(Workload { batch, prompt_tokens, .. }) = point.scenario.workload else {
            return Err(Failure::Input(anyhow!("--grid plans static batches: {}", AXES.join(" and "))));
        };
        Ok(Cell { batch, prompt_tokens, weight: Ratio::ONE })
    });
    let score = |workload: &Workload, placement: &Placement, chunk: u64| {
        sim::estimate(question.pricing(), placement, workload, chunk)
    };
    let cells = cells.collect::<Outcome<Vec<_>>>()?;
    let table = planner::plan_grid(&question.question(), &cells, &score).map_err(sorted)?;
    tracing::info!(model = question.model.name, cells = table.cells.len(), "planned");
    Ok(PlanTable { from: question.origin, ..table })
}

/// The table for people, at most [`WIDTH`] columns wide.
pub fn summary(table: &PlanTable) -> String {
    let mut text = String::new();
    let percent = |ratio: Ratio| (ratio.get() - 1.0) * 100.0;
    let sharing = &table.sharing;
    let heading = format!(
        "{} on {}: {} cells, {} output tokens, {} placements. To share the homes of weights changes the \
         objective by {:+.1} % on average and {:+.1} % at worst; {:.1} % of the mean is proven.",
        table.model.name,
        table.machine.name,
        table.cells.len(),
        table.output_tokens,
        table.placements.len(),
        percent(sharing.slowdown),
        percent(sharing.worst),
        sharing.proven.get() * 100.0,
    );
    push_wrapped(&mut text, &heading, "");
    let columns = ["batch", "prompt", "chunk", "plan", "TTFT", "TPOT", "alone", "alone", "switch"];
    push_row(&mut text, columns.map(str::to_owned));
    for cell in &table.cells {
        push_row(&mut text, row(cell));
    }
    for cell in &table.without {
        let line = format!("batch {}, {} prompt tokens: {}", cell.batch, cell.prompt_tokens, cell.reason);
        push_wrapped(&mut text, &line, "  ");
    }
    text
}

fn row(cell: &CellPlan) -> [String; 9] {
    let tpot = |times: &planner::Times| times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
    [
        cell.batch.to_string(),
        cell.prompt_tokens.to_string(),
        cell.prefill_chunk.to_string(),
        cell.placement.to_string(),
        cell.simulated.ttft.to_string(),
        tpot(&cell.simulated),
        cell.own.ttft.to_string(),
        tpot(&cell.own),
        cell.switch.map_or("-".to_owned(), |time| time.to_string()),
    ]
}

fn push_row(
    text: &mut String,
    [batch, prompt, chunk, plan, ttft, tpot, own_ttft, own_tpot, switch]: [String; 9],
) {
    let line = format!(
        "{batch:>6} {prompt:>7} {chunk:>7} {plan:>4} {ttft:>9} {tpot:>9} {own_ttft:>9} {own_tpot:>9} {switch:>9}"
    );
    writeln!(text, "{line}").expect("a text takes lines");
}

/// `line` in as many lines as it needs, all but the first behind `indent`.
fn push_wrapped(text: &mut String, line: &str, indent: &str) {
    let mut column = 0;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}
