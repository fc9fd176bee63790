//! The section of a grid: a plan for each batch and prompt length.

use crate::numbers::format::counted;
use crate::numbers::format::{duration, percent};
use crate::page::block::{PageBlock, Table, TableCell, TableColumn};
use crate::page::section::PageSection;
use crate::plots::cell_map::{self, MapCell};
use crate::results::error::ReportError;
use planner::{CellPlan, NamedPlacement, NamedSlices, PlanTable, TABLE_VERSION};
use std::path::Path;

/// Refuses a table, the output of `fulcrum plan --grid`, that has no section.
pub(crate) fn check(table: &PlanTable, path: &Path) -> Result<(), ReportError> {
    let unknown = |key, value: String, wanted: String| ReportError::Unknown {
        path: path.to_owned(),
        key,
        value,
        wanted,
    };
    if table.table != TABLE_VERSION {
        return Err(unknown("table", table.table.to_string(), TABLE_VERSION.to_string()));
    }
    let count = table.placements.len();
    match table.cells.iter().find(|cell| cell.placement >= count) {
        Some(cell) => {
            Err(unknown("placement", cell.placement.to_string(), format!("an index below {count}")))
        }
        None => Ok(()),
    }
}

pub(crate) fn section(table: &PlanTable) -> PageSection {
    let devices = devices(table);
    let cells: Vec<_> = table.cells.iter().map(|cell| map_cell(table, cell, &devices)).collect();
    let without = table.without.iter().map(|it| MapCell {
        load: [it.batch, it.prompt_tokens],
        label: "no plan".to_owned(),
        hover: format!("batch {}, {} prompt tokens: {}", it.batch, it.prompt_tokens, it.reason),
        shares: [vec![], vec![]],
    });
    let cells: Vec<_> = cells.into_iter().chain(without).collect();
    let mut blocks = Vec::new();
    if table.edited {
        let words = "The file was edited since it was planned, or another version wrote it: its times are \
                     predicted anew, and what only planning finds is left out.";
        blocks.push(PageBlock::Note(words.to_owned()));
    }
    match cells.is_empty() {
        true => blocks.push(PageBlock::Note("There is no cell in this grid.".to_owned())),
        false => {
            let names: Vec<_> = devices.iter().map(String::as_str).collect();
            blocks.push(PageBlock::Text(
                "Each cell shows the share of the sublayers that each device computes: in prefill \
                 above, in decode below. The number is the index of the placement; the time is per \
                 output token."
                    .to_owned(),
            ));
            blocks.push(PageBlock::wide(
                "map",
                cell_map::draw("The best placement by batch and prompt length", &names, &cells),
            ));
        }
    }
    blocks.push(PageBlock::Table(rows(table)));
    let best = if table.edited { "placements" } else { "best placements" };
    PageSection {
        title: format!("{} on {}: {best}", table.model.name, table.machine.name),
        lead: format!(
            "{} of batch and prompt length with {} output tokens each, and {}. All placements share one \
             set of resident weights{}.",
            counted(table.cells.len(), "cell"),
            table.output_tokens,
            counted(table.placements.len(), "placement"),
            cost_of_sharing(table),
        ),
        blocks,
    }
}

/// What sharing the weights costs, as planning found it.
fn cost_of_sharing(table: &PlanTable) -> String {
    let change = |ratio: hwprofiles::Ratio| format!("{:+.1} %", (ratio.get() - 1.0) * 100.0);
    let [slowdown, worst] = [table.sharing.slowdown, table.sharing.worst].map(change);
    match table.edited {
        true => String::new(),
        false => {
            let objective = table.objective;
            format!(
                ", which changes the objective ({objective}) by {slowdown} on average and {worst} at worst"
            )
        }
    }
}

/// The devices of all placements, in order of first appearance.
fn devices(table: &PlanTable) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, parts) in table.placements.iter().flat_map(sublayers) {
        for name in parts.0.iter().flat_map(|part| [&part.prefill, &part.decode]) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// The sublayers of each group of layers, with the number of layers.
fn sublayers(placement: &NamedPlacement) -> impl Iterator<Item = (u64, &NamedSlices)> {
    placement.layers.iter().flat_map(|group| group.parts().map(move |(_, parts)| (group.count, parts)))
}

/// The share of sublayers that each device computes, in prefill and in decode.
fn shares(placement: &NamedPlacement, devices: &[String]) -> [Vec<f64>; 2] {
    let mut sums = [vec![0.0; devices.len()], vec![0.0; devices.len()]];
    let mut whole = 0.0;
    for (count, parts) in sublayers(placement) {
        whole += count as f64;
        for part in &parts.0 {
            let share = part.share.unwrap_or(1.0) * count as f64;
            for (sums, name) in sums.iter_mut().zip([&part.prefill, &part.decode]) {
                sums[devices
                    .iter()
                    .position(|it| it == name)
                    .expect("collected from the same placements")] += share;
            }
        }
    }
    sums.map(|sums| sums.into_iter().map(|sum| if whole > 0.0 { sum / whole } else { 0.0 }).collect())
}

fn map_cell(table: &PlanTable, cell: &CellPlan, devices: &[String]) -> MapCell {
    let time = cell.simulated.tpot.unwrap_or(cell.simulated.ttft);
    MapCell {
        load: [cell.batch, cell.prompt_tokens],
        label: format!("{}: {}", cell.placement, duration(time)),
        hover: format!(
            "batch {}, {} prompt tokens: placement {}, TTFT {}",
            cell.batch,
            cell.prompt_tokens,
            cell.placement,
            duration(cell.simulated.ttft)
        ),
        shares: shares(&table.placements[cell.placement], devices),
    }
}

fn rows(table: &PlanTable) -> Table {
    let known = if table.edited { 7 } else { 10 };
    let devices = devices(table);
    let words = |shares: &[f64]| {
        let used = devices.iter().zip(shares).filter(|(_, share)| **share > 0.0);
        used.map(|(name, share)| format!("{name} {}", percent(*share))).collect::<Vec<_>>().join(", ")
    };
    let row = |cell: &CellPlan| {
        let [prefill, decode] = shares(&table.placements[cell.placement], &devices).map(|it| words(&it));
        let tpot = |times: &planner::PhaseTimes| times.tpot.map_or("–".to_owned(), duration);
        let cells = [
            cell.batch.to_string(),
            cell.prompt_tokens.to_string(),
            cell.placement.to_string(),
            prefill,
            decode,
            duration(cell.simulated.ttft),
            tpot(&cell.simulated),
            duration(cell.own.ttft),
            tpot(&cell.own),
            cell.switch.map_or("–".to_owned(), duration),
        ];
        cells.into_iter().take(known).map(TableCell::from).collect()
    };
    let without = table.without.iter().map(|it| {
        let mut cells =
            vec![TableCell::from(it.batch.to_string()), TableCell::from(it.prompt_tokens.to_string())];
        let none = ["none", it.reason.as_str(), "", "–", "–", "–", "–", "–"];
        cells.extend(none.into_iter().take(known - 2).map(TableCell::from));
        cells
    });
    // The last three columns are what only planning finds.
    let columns = [
        TableColumn::name("batch"),
        TableColumn::number("prompt"),
        TableColumn::number("placement"),
        TableColumn::text("prefill"),
        TableColumn::text("decode"),
        TableColumn::number("TTFT"),
        TableColumn::number("TPOT"),
        TableColumn::number("TTFT alone"),
        TableColumn::number("TPOT alone"),
        TableColumn::number("switch"),
    ];
    let planned = "“Alone”: with the best placement for this cell if weights were not shared. “Switch”: the time to \
                   move the weights there and back, where that is faster than sharing.";
    let caption = if table.edited { "" } else { planned };
    Table {
        label: "Every cell of the grid".to_owned(),
        caption: format!("Simulated with contention. {caption}").trim_end().to_owned(),
        columns: columns.into_iter().take(known).collect(),
        rows: table.cells.iter().map(row).chain(without).collect(),
    }
}
