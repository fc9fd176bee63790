//! The devices that each placement of a grid uses, by batch (upwards) and prompt length (to the
//! right).

use super::legend::{legend, legend_height, text_width};
use crate::numbers::format::percent;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};

const ROW: f64 = 46.0;
const COLUMN: f64 = 104.0;
const LEFT: f64 = 96.0;

/// One cell of the grid.
#[derive(Debug, Clone)]
pub(crate) struct MapCell {
    /// Sequences of the batch, and prompt tokens of each.
    pub load: [u64; 2],
    /// The text in the cell.
    pub label: String,
    /// The hover text of the cell.
    pub hover: String,
    /// The share of each device, in prefill and in decode. Empty where there is no plan.
    pub shares: [Vec<f64>; 2],
}

/// Draws a bar for prefill above a bar for decode in each cell, divided among `devices`.
pub(crate) fn draw(title: &str, devices: &[&str], cells: &[MapCell]) -> Drawing {
    let sorted = |side: usize| {
        let mut all: Vec<_> = cells.iter().map(|cell| cell.load[side]).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (batches, prompts) = (sorted(0), sorted(1));
    let width = (LEFT + COLUMN * prompts.len() as f64 + 16.0).max(text_width(title) + 28.0).max(420.0);
    let top = 34.0 + legend_height(devices, width - LEFT);
    let bottom = top + ROW * batches.len() as f64;
    let mut drawing = Drawing::new(width, bottom + 54.0, title);
    drawing.text(Class::Strong, [14.0, 18.0], Anchor::Start, title);
    legend(&mut drawing, [LEFT, 42.0], width - LEFT, devices, |drawing, index, [x, y]| {
        drawing.rect(Class::Bar(index), [x - 6.0, y - 6.0], [12.0, 12.0], "");
    });
    for cell in cells {
        let place = |all: &[u64], value| all.iter().position(|it| *it == value).unwrap_or(0) as f64;
        let x = LEFT + COLUMN * place(&prompts, cell.load[1]);
        let y = bottom - ROW * (place(&batches, cell.load[0]) + 1.0);
        draw_cell(&mut drawing, cell, devices, [x, y]);
    }
    for (index, batch) in batches.iter().enumerate() {
        let y = bottom - ROW * (index as f64 + 0.5);
        drawing.text(Class::Soft, [LEFT - 8.0, y + 4.5], Anchor::End, &batch.to_string());
    }
    for (index, prompt) in prompts.iter().enumerate() {
        let x = LEFT + COLUMN * (index as f64 + 0.5);
        drawing.text(Class::Soft, [x, bottom + 19.0], Anchor::Middle, &prompt.to_string());
    }
    let middle = LEFT + COLUMN * prompts.len() as f64 / 2.0;
    drawing.text(Class::Text, [middle, bottom + 43.0], Anchor::Middle, "prompt tokens");
    drawing.upright(Class::Text, [16.0, (top + bottom) / 2.0], "batch");
    drawing
}

fn draw_cell(drawing: &mut Drawing, cell: &MapCell, devices: &[&str], [x, y]: [f64; 2]) {
    let (left, width) = (x + 4.0, COLUMN - 8.0);
    drawing.rect(Class::Frame, [x + 1.0, y + 1.0], [COLUMN - 2.0, ROW - 2.0], "");
    if cell.shares.iter().all(Vec::is_empty) {
        drawing.rect(Class::Empty, [x + 1.0, y + 1.0], [COLUMN - 2.0, ROW - 2.0], &cell.hover);
    }
    for (row, (shares, phase)) in cell.shares.iter().zip(["prefill", "decode"]).enumerate() {
        let mut start = left;
        for (index, share) in shares.iter().enumerate() {
            let hover = format!("{}; {phase}: {} on {}", cell.hover, percent(*share), devices[index]);
            let at = [start, y + 5.0 + 11.0 * row as f64];
            drawing.rect(Class::Bar(index), at, [width * share, 9.0], &hover);
            start += width * share;
        }
    }
    drawing.text(Class::Tiny, [x + COLUMN / 2.0, y + 40.0], Anchor::Middle, &cell.label);
}
