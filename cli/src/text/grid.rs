//! A table of plans in words.

use super::phase_times::tpot;
use hwprofiles::Ratio;
use planner::{CellPlan, PlanTable};
use std::fmt::Write;

/// The columns of a terminal.
const WIDTH: usize = 80;

/// The table as text, at most [`WIDTH`] columns wide.
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

/// Adds `line`, broken into as many lines as it needs; all but the first begin with `indent`.
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
