//! The memory that a plan takes, against the capacity of each memory.

use super::legend::{legend, text_width};
use crate::numbers::format::{percent, size};
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing};
use crate::results::configuration::MemoryUse;

const TOP: f64 = 40.0;
const ROW: f64 = 64.0;
const WIDTH: f64 = 560.0;

const PURPOSES: [&str; 4] = ["weights", "KV cache", "activations", "staging"];

pub(crate) fn draw(memories: &[MemoryUse]) -> Drawing {
    let left = memories.iter().map(|it| text_width(&it.memory)).fold(60.0, f64::max) + 14.0;
    let height = TOP + ROW * memories.len() as f64 + 8.0;
    let mut drawing =
        Drawing::new(left + WIDTH + 24.0, height, "Planned bytes of each memory against its capacity");
    let square = |drawing: &mut Drawing, index: usize, [x, y]: [f64; 2]| {
        drawing.rect(Class::Bar(index), [x - 5.0, y - 5.0], [10.0, 10.0], "");
    };
    legend(&mut drawing, [left, 16.0], WIDTH, &PURPOSES, square);
    for (index, it) in memories.iter().enumerate() {
        let top = TOP + ROW * index as f64;
        drawing.text(Class::Text, [left - 10.0, top + 18.0], Anchor::End, &it.memory);
        bar(&mut drawing, [left, top], it);
        let planned = it.planned();
        let share = if it.capacity.get() == 0 { 0.0 } else { planned.as_f64() / it.capacity.as_f64() };
        let mut label = format!("{} of {} planned ({})", size(planned), size(it.capacity), percent(share));
        if let Some(allocated) = it.allocated {
            label += &format!(", at most {} allocated", size(allocated));
        }
        drawing.text(Class::Soft, [left, top + 42.0], Anchor::Start, &label);
    }
    drawing
}

/// Draws the parts of a memory's use in a row within its capacity, and a mark at the largest
/// allocation. Where more is used than exists, the bar spans the use and a line marks the capacity.
fn bar(drawing: &mut Drawing, [left, top]: [f64; 2], it: &MemoryUse) {
    let whole = [it.capacity, it.planned(), it.allocated.unwrap_or_default()]
        .iter()
        .map(|b| b.as_f64())
        .fold(1.0, f64::max);
    let x = |bytes: f64| left + WIDTH * bytes / whole;
    drawing.rect(Class::Empty, [left, top], [WIDTH, 26.0], &format!("capacity {}", size(it.capacity)));
    let mut start = 0.0;
    let parts = [it.weights, it.kv, it.activations, it.staging];
    for (index, (bytes, purpose)) in parts.into_iter().zip(PURPOSES).enumerate() {
        let end = start + bytes.as_f64();
        let hover = format!("{}: {purpose} {}", it.memory, size(bytes));
        drawing.rect(Class::Bar(index), [x(start), top], [x(end) - x(start), 26.0], &hover);
        start = end;
    }
    drawing.rect(Class::Frame, [left, top], [WIDTH, 26.0], "");
    let capacity = x(it.capacity.as_f64());
    drawing.line(Class::Limit, [capacity, top - 3.0], [capacity, top + 29.0]);
    if let Some(allocated) = it.allocated {
        let at = x(allocated.as_f64());
        drawing.polygon(
            Class::Axis,
            &[[at - 4.0, top - 6.0], [at + 4.0, top - 6.0], [at, top]],
            &format!("at most {} allocated", size(allocated)),
        );
    }
}
