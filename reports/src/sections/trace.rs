//! The section of a trace: a run, task by task.

use super::plan::PlannedRun;
use super::run::run_blocks;
use super::validation;
use crate::numbers::format::{counted, duration, plain};
use crate::page::block::{NumberTile, PageBlock};
use crate::page::section::PageSection;
use crate::results::comparison::Comparison;
use hwprofiles::{Machine, Seconds};
use planner::{Recorder, Trace};

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

fn beside_prediction(joined: &Comparison) -> Vec<PageBlock> {
    let mut blocks = vec![PageBlock::Heading("Compared with its prediction".to_owned())];
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
