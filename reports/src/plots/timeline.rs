//! One step as a Gantt chart: for every lane, the predicted tasks above the measured ones.

use super::legend::{legend, legend_height, text_width, tick_label};
use crate::numbers::format::{duration, signed_percent};
use crate::plots::drawing::axis::PlotAxis;
use crate::plots::drawing::class::Class;
use crate::plots::drawing::marks::{Anchor, Drawing, TimeSpan};
use crate::results::comparison::{Interval, TaskRow, Timeline};
use hwprofiles::Seconds;
use std::collections::BTreeSet;

const WIDTH: f64 = 840.0;
/// The width for all kinds in one row of the legend.
const LEGEND: f64 = 950.0;
const BAR: f64 = 17.0;

/// What a task does, which chooses its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskKind {
    MatrixProduct,
    Attention,
    Experts,
    WeightTransfer,
    ActivationTransfer,
    Other,
}

/// The entries of the legend: what a colour means, and its class.
const LEGEND_ENTRIES: [(&str, Class); 7] = [
    ("matrix product", TaskKind::MatrixProduct.class()),
    ("attention", TaskKind::Attention.class()),
    ("experts", TaskKind::Experts.class()),
    ("weights or KV moved", TaskKind::WeightTransfer.class()),
    ("activations moved", TaskKind::ActivationTransfer.class()),
    ("norms and the rest", TaskKind::Other.class()),
    ("waits", Class::Wait),
];

impl TaskKind {
    fn from_task(task: &TaskRow) -> Self {
        match task.name.as_str() {
            _ if is_prefetch(task) => Self::WeightTransfer,
            name if name.starts_with("hop ") => Self::ActivationTransfer,
            name if name.ends_with("_proj") => Self::MatrixProduct,
            "attention" => Self::Attention,
            "experts" | "shared_expert" => Self::Experts,
            _ => Self::Other,
        }
    }

    const fn class(self) -> Class {
        match self {
            Self::MatrixProduct => Class::Bar(0),
            Self::Attention => Class::Bar(1),
            Self::WeightTransfer => Class::Bar(2),
            Self::ActivationTransfer => Class::Bar(3),
            Self::Experts => Class::Bar(4),
            Self::Other => Class::Bar(5),
        }
    }
}

/// One side of a timeline: its name, and the interval of a task on it.
pub(crate) type TimelineSide = (&'static str, fn(&TaskRow) -> Interval);

/// The predicted and the measured side, in drawing order.
pub(crate) const BOTH: &[TimelineSide] =
    &[("predicted", |task| task.predicted), ("measured", |task| task.measured)];

/// The only side of a simulated trace that is joined with itself.
pub(crate) const SIMULATED: &[TimelineSide] = &[("simulated", |task| task.predicted)];
/// The only side of a measured trace.
pub(crate) const MEASURED: &[TimelineSide] = &[("measured", |task| task.predicted)];
/// The only side of a trace of devices that spend modelled time.
pub(crate) const MODELLED: &[TimelineSide] = &[("modelled", |task| task.predicted)];

/// Draws the whole step.
pub(crate) fn draw(timeline: &Timeline, sides: &[TimelineSide]) -> Drawing {
    let ends = [timeline.time.predicted, timeline.time.measured];
    let length = timeline.tasks.iter().flat_map(|task| sides.iter().map(|(_, interval)| interval(task).end));
    let length = length.chain(ends).fold(Seconds::ZERO, Seconds::max);
    let name = name(timeline);
    let title = match sides {
        [(word, _)] => format!("{name}, {word} {}", duration(ends[0])),
        _ => format!(
            "{name}, predicted {}, measured {} ({})",
            duration(ends[0]),
            duration(ends[1]),
            signed_percent(timeline.time.error())
        ),
    };
    GanttChart { title, timeline, sides, from: vec![Seconds::ZERO; sides.len()], length, ends: Some(ends) }
        .draw()
}

/// Draws two consecutive layers of the step. Each side starts when it first computes one of them.
/// Tasks of other layers in that time, such as prefetches, are shown too.
pub(crate) fn draw_layers(timeline: &Timeline, sides: &[TimelineSide]) -> Drawing {
    let layers = busiest_layers(timeline);
    let of_layers =
        |task: &&TaskRow| task.layer.is_some_and(|layer| layers.contains(&layer)) && !is_prefetch(task);
    let tasks = || timeline.tasks.iter().filter(of_layers);
    let start = |(_, interval): &TimelineSide| {
        tasks().map(|task| interval(task).start).reduce(Seconds::min).unwrap_or_default()
    };
    let end = |(_, interval): &TimelineSide| {
        tasks().map(|task| interval(task).end).fold(Seconds::ZERO, Seconds::max)
    };
    let from: Vec<_> = sides.iter().map(start).collect();
    let lengths = sides.iter().zip(&from).map(|(side, from)| end(side) - *from);
    let length = lengths.fold(Seconds::new(1e-9), Seconds::max);
    let title = match layers {
        [first, second] if first < second => format!("Layers {first} and {second} of this step"),
        [only, _] => format!("Layer {only} of this step"),
    };
    GanttChart { title, timeline, sides, from, length, ends: None }.draw()
}

/// The two layers, one behind the other, that use the most lanes and have the most tasks. Among
/// equals, those in the middle.
fn busiest_layers(timeline: &Timeline) -> [u32; 2] {
    let layers: BTreeSet<u32> = timeline.tasks.iter().filter_map(|task| task.layer).collect();
    let layers: Vec<u32> = layers.into_iter().collect();
    let pairs: Vec<[u32; 2]> = match &layers[..] {
        [] => vec![[0, 0]],
        [only] => vec![[*only; 2]],
        several => several.windows(2).map(|pair| [pair[0], pair[1]]).collect(),
    };
    let activity = |pair: &[u32; 2]| {
        let tasks =
            || timeline.tasks.iter().filter(|task| task.layer.is_some_and(|layer| pair.contains(&layer)));
        let lanes: BTreeSet<_> = tasks().map(|task| &task.lane).collect();
        (lanes.len(), tasks().count())
    };
    let most = pairs.iter().map(activity).max();
    let best: Vec<_> = pairs.iter().filter(|pair| Some(activity(pair)) == most).collect();
    *best[best.len() / 2]
}

/// A heading for the step.
pub(crate) fn name(timeline: &Timeline) -> String {
    let step = timeline.step;
    let sequences = if step.batch == 1 { "sequence" } else { "sequences" };
    match step.phase {
        scenarios::Phase::Prefill => {
            format!("Prefill step of {} {sequences} × {} tokens", step.batch, step.new_tokens)
        }
        scenarios::Phase::Decode => {
            format!("Decode step of {} {sequences} after {} tokens", step.batch, step.past_tokens)
        }
    }
}

/// Whether a task is a transfer that runs ahead of its layer.
fn is_prefetch(task: &TaskRow) -> bool {
    task.name.starts_with("fetch ") || task.name.starts_with("store ")
}

/// Whether a task with this name moves bytes between memories rather than computes.
pub(crate) fn is_copy(name: &str) -> bool {
    ["fetch ", "store ", "hop "].iter().any(|word| name.starts_with(word))
}

/// A step as bars on lanes.
struct GanttChart<'a> {
    title: String,
    timeline: &'a Timeline,
    sides: &'a [TimelineSide],
    /// The start of each side's time.
    from: Vec<Seconds>,
    length: Seconds,
    /// The ends of the step, where they are marked.
    ends: Option<[Seconds; 2]>,
}

impl GanttChart<'_> {
    fn draw(&self) -> Drawing {
        let mut lanes: Vec<&str> = Vec::new();
        for task in &self.timeline.tasks {
            if !lanes.contains(&task.lane.as_str()) {
                lanes.push(&task.lane);
            }
        }
        let left = lanes.iter().map(|lane| text_width(lane)).fold(40.0, f64::max) + 88.0;
        let names = LEGEND_ENTRIES.map(|(name, _)| name);
        let top = 34.0 + legend_height(&names, LEGEND);
        let height = BAR * self.sides.len() as f64 + 16.0;
        let bottom = top + height * lanes.len() as f64;
        let mut drawing = Drawing::new(left + WIDTH + 24.0, bottom + 34.0, &self.title);
        drawing.text(Class::Strong, [14.0, 18.0], Anchor::Start, &self.title);
        legend(&mut drawing, [left, 40.0], LEGEND, &names, |drawing, index, [x, y]| {
            drawing.rect(LEGEND_ENTRIES[index].1, [x - 6.0, y - 6.0], [12.0, 12.0], "");
        });
        let axis = PlotAxis::linear(0.0, self.length.get(), [left, left + WIDTH]);
        drawing.set_time(TimeSpan { x: axis.pixels(), y: [top, bottom], length: self.length });
        for tick in axis.ticks(9) {
            drawing.line(Class::Grid, [axis.at(tick), top], [axis.at(tick), bottom]);
            drawing.text(Class::Soft, [axis.at(tick), bottom + 19.0], Anchor::Middle, &tick_label(tick));
        }
        for (index, lane) in lanes.iter().enumerate() {
            let y = top + height * index as f64 + 8.0;
            drawing.text(
                Class::Text,
                [left - 84.0, y + BAR * self.sides.len() as f64 / 2.0 + 4.5],
                Anchor::End,
                lane,
            );
            for (side, (word, _)) in self.sides.iter().enumerate() {
                let y = y + BAR * side as f64;
                drawing.text(Class::Tiny, [left - 8.0, y + 12.5], Anchor::End, word);
                drawing.rect(Class::Wait, [left, y + 1.0], [WIDTH, BAR - 2.0], "");
                self.lane(&mut drawing, &axis, lane, side, y + 1.0);
            }
        }
        for (end, class) in self.ends.into_iter().flatten().zip([Class::Ideal, Class::Axis]) {
            drawing.line(class, [axis.at(end.get()), top], [axis.at(end.get()), bottom]);
        }
        drawing
    }

    /// Draws the tasks of one side of one lane that are within the chart.
    fn lane(&self, drawing: &mut Drawing, axis: &PlotAxis, lane: &str, side: usize, y: f64) {
        for task in self.timeline.tasks.iter().filter(|task| task.lane == lane) {
            let (side_name, interval) = self.sides[side];
            let interval = interval(task);
            let (start, end) = (interval.start - self.from[side], interval.end - self.from[side]);
            let (start, end) = (start.max(Seconds::ZERO), end.min(self.length));
            if end < start {
                continue;
            }
            // A task that is too short to see is drawn as a thin line.
            let (x, width) = (axis.at(start.get()), (axis.at(end.get()) - axis.at(start.get())).max(0.4));
            let layer = task.layer.map_or(String::new(), |layer| format!("layer {layer}, "));
            let took = duration(interval.end - interval.start);
            let hover = format!("{layer}{}: {} for {took}, {}", task.name, lane, side_name);
            drawing.rect(TaskKind::from_task(task).class(), [x, y], [width, BAR - 2.0], &hover);
            if self.ends.is_none() && width > text_width(&task.name) {
                drawing.text(Class::Inside, [x + width / 2.0, y + 11.5], Anchor::Middle, &task.name);
            }
        }
    }
}
