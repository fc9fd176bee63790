//! The section of a trace: a run, task by task.

use super::plan::PlannedRun;
use super::roofline;
use super::validation;
use crate::numbers::format::counted;
use crate::numbers::format::{duration, percent, plain};
use crate::page::block::{NumberTile, PageBlock, Table, TableCell, TableColumn};
use crate::page::section::PageSection;
use crate::plots::timeline::{self, TimelineSide, is_copy};
use crate::results::comparison::Comparison;
use hwprofiles::{Machine, Seconds};
use planner::{Recorder, Trace};
use scenarios::{Phase, WeightFormats};

/// A trace, with its machine if that is known.
#[derive(Debug, Clone)]
pub(crate) struct TracedRun {
    pub trace: Trace,
    pub machine: Option<Machine>,
}

impl TracedRun {
    /// Makes the section. `plans` may hold the plan of this run, `others` a prediction of it.
    pub(crate) fn section(&self, plans: &[&PlannedRun], others: &[&Trace]) -> PageSection {
        let trace = &self.trace;
        let plan = plans.iter().find(|it| it.trace.plan == trace.plan);
        let machine = plan.map(|it| &it.machine).or(self.machine.as_ref());
        let word = recorder(trace.recorder);
        let mut blocks = vec![PageBlock::Tiles(tiles(trace))];
        blocks.extend(run_blocks(trace, machine, plan.map(|it| it.plan.formats.weights)));
        if trace.recorder != Recorder::Simulated {
            let simulated = others.iter().copied().chain(plans.iter().map(|it| &it.trace));
            let mut simulated = simulated.filter(|it| it.recorder == Recorder::Simulated);
            let joined = simulated.find_map(|it| Comparison::join(it, trace).ok());
            blocks.extend(joined.iter().flat_map(beside_prediction));
        }
        PageSection {
            title: format!("{} on {}: {word}", trace.model, trace.machine),
            lead: format!(
                "{} of {}, {word}; the plan’s fingerprint is {}.",
                counted(trace.events.len(), "task"),
                counted(trace.steps.len(), "step"),
                trace.plan
            ),
            blocks,
        }
    }
}

fn recorder(recorder: Recorder) -> &'static str {
    match recorder {
        Recorder::Simulated => "simulated run",
        Recorder::Measured => "measured run",
        Recorder::Modelled => "run on null devices, which spend modelled time",
    }
}

fn sides(recorder: Recorder) -> &'static [TimelineSide] {
    match recorder {
        Recorder::Simulated => timeline::SIMULATED,
        Recorder::Measured => timeline::MEASURED,
        Recorder::Modelled => timeline::MODELLED,
    }
}

fn tiles(trace: &Trace) -> Vec<NumberTile> {
    let end = Seconds::from_nanos(trace.steps.last().map_or(0, |step| step.end_ns));
    let mut tiles =
        vec![NumberTile::new("TTFT, time to first token", duration(Seconds::from_nanos(trace.ttft_ns())))];
    let tpot = trace.tpot_ns().map(|nanos| duration(Seconds::new(nanos / 1e9)));
    tiles.extend(tpot.map(|tpot| NumberTile::new("TPOT, time per output token", tpot)));
    if end > Seconds::ZERO {
        let rate = plain(trace.output_tokens() / end.get());
        tiles.push(NumberTile::new("Output tokens per second", rate));
    }
    tiles
}

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
            "The last prefill step and the decode step in the middle, and two layers of each: what each device and link does, \
             and where it waits for another."
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
        let times = [busy - copies, copies, waits].map(with_share);
        let cells = [phase.to_string(), lane.to_owned()].into_iter().chain(times);
        cells.map(TableCell::from).collect()
    };
    let numbers = ["computes", "copies", "waits"].map(TableColumn::number);
    Table {
        label: "What each device and link did".to_owned(),
        caption: "Time of each device and link in all steps of a phase, and its share of them.".to_owned(),
        columns: [TableColumn::text("phase"), TableColumn::name("lane")].into_iter().chain(numbers).collect(),
        rows: own.lanes.iter().map(|it| row(it.phase, &it.lane, it.busy.predicted)).collect(),
    }
}

fn beside_prediction(joined: &Comparison) -> Vec<PageBlock> {
    let mut blocks = vec![PageBlock::Heading("Beside its prediction".to_owned())];
    // The drawings of the run itself have the same names, so these get a prefix.
    blocks.extend(validation::joined_steps(joined).into_iter().map(|block| match block {
        PageBlock::Plots(mut plots) => {
            plots.iter_mut().for_each(|plot| plot.name = format!("joined-{}", plot.name));
            PageBlock::Plots(plots)
        }
        other => other,
    }));
    blocks.extend(validation::comparison_tables(joined).map(PageBlock::Table));
    blocks
}
