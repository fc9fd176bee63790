//! The blocks that plans and traces share: the steps of a run, the work of each lane, the roofline.

use super::roofline;
use crate::numbers::format::{duration, percent};
use crate::page::block::{PageBlock, Table, TableCell, TableColumn};
use crate::plots::timeline::{self, TimelineSide, is_copy};
use crate::results::comparison::Comparison;
use hwprofiles::{Machine, Seconds};
use planner::{Recorder, Trace};
use scenarios::{Phase, WeightFormats};

/// The steps, the work of each device and link, and the roofline.
pub(crate) fn run_blocks(
    trace: &Trace,
    machine: Option<&Machine>,
    weights: Option<WeightFormats>,
) -> Vec<PageBlock> {
    // A trace joined with itself gives the same sums and steps, with one side to show.
    let Ok(own) = Comparison::join(trace, trace) else { return vec![] };
    if own.steps.is_empty() {
        return vec![PageBlock::Note("This run has no steps.".to_owned())];
    }
    let sides = sides(trace.recorder);
    let mut blocks = vec![
        PageBlock::Heading("Step by step".to_owned()),
        PageBlock::Text(
            "The last prefill step and the middle decode step, with two layers of each: the tasks of \
             each device and link, and its waiting time."
                .to_owned(),
        ),
    ];
    for step in &own.timelines {
        let phase = step.step.phase;
        blocks.push(PageBlock::wide(format!("step-{phase}"), timeline::draw(step, sides)));
        blocks.push(PageBlock::wide(format!("step-{phase}-layers"), timeline::draw_layers(step, sides)));
    }
    blocks.push(PageBlock::Table(lanes(&own)));
    blocks.extend(roofline::blocks(trace, machine, weights));
    blocks
}

/// The side of a trace that is shown, named after its recorder.
fn sides(recorder: Recorder) -> &'static [TimelineSide] {
    match recorder {
        Recorder::Simulated => timeline::SIMULATED,
        Recorder::Measured => timeline::MEASURED,
        Recorder::Modelled => timeline::MODELLED,
    }
}

/// The time in which each device and link computed, copied and waited.
fn lanes(own: &Comparison) -> Table {
    let row = |phase: Phase, lane: &str, busy: Seconds| {
        let copies = own.phase_operators(phase).filter(|row| row.lane == lane && is_copy(&row.name));
        let copies = copies.map(|row| row.total.predicted).fold(Seconds::ZERO, |sum, it| sum + it);
        let whole = own.phase_time(phase).predicted;
        let waits = (whole - busy).max(Seconds::ZERO);
        let with_share = |time: Seconds| match whole > Seconds::ZERO {
            true => format!("{} ({})", duration(time), percent(time / whole)),
            false => duration(time),
        };
        let times = [(busy - copies).max(Seconds::ZERO), copies, waits].map(with_share);
        let cells = [phase.to_string(), lane.to_owned()].into_iter().chain(times);
        cells.map(TableCell::from).collect()
    };
    let numbers = ["computes", "copies", "waits"].map(TableColumn::number);
    Table {
        label: "Work of each device and link".to_owned(),
        caption: "Time of each device and link in all steps of a phase, and its share of them.".to_owned(),
        columns: [TableColumn::text("phase"), TableColumn::name("lane")].into_iter().chain(numbers).collect(),
        rows: own.lanes.iter().map(|it| row(it.phase, &it.lane, it.busy.predicted)).collect(),
    }
}
