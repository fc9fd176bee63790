//! A table of plans in words.

use super::phase_times::tpot;
use hwprofiles::{Ratio, TERMINAL_COLUMNS, wrapped};
use planner::{CellPlan, PlanTable};
use std::fmt::Write;

/// The table as text, at most [`TERMINAL_COLUMNS`] columns wide.
pub fn summary(table: &PlanTable) -> String {
    let mut text = String::new();
    let percent = |ratio: Ratio| (ratio.get() - 1.0) * 100.0;
    let sharing = &table.sharing;
    let heading = format!(
        "{} on {}: {} cells, {} output tokens, {} placements. To share the homes of weights changes the \
         objective by {:+.1} % on average and {:+.1} % at worst; {:.1} % of the mean is proven. `own` is the best \
         that was found for the cell alone, without the last search of `fulcrum plan`.",
        table.model.name,
        table.machine.name,
        table.cells.len(),
        table.output_tokens,
        table.placements.len(),
        percent(sharing.slowdown),
        percent(sharing.worst),
        sharing.proven.get() * 100.0,
    );
    text += &(wrapped("", &heading, 0, TERMINAL_COLUMNS).join("\n") + "\n");
    let columns = ["batch", "prompt", "chunk", "plan", "TTFT", "TPOT", "own TTFT", "own TPOT", "switch"];
    push_row(&mut text, columns.map(str::to_owned));
    for cell in &table.cells {
        push_row(&mut text, row(cell));
    }
    for cell in &table.without {
        let line = format!("batch {}, {} prompt tokens: {}", cell.batch, cell.prompt_tokens, cell.reason);
        text += &(wrapped("", &line, 2, TERMINAL_COLUMNS).join("\n") + "\n");
    }
    text
}

fn row(cell: &CellPlan) -> [String; 9] {
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
    writeln!(text, "{line}").expect("a String takes every line");
}
