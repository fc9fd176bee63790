//! A serving scenario: engines that answer requests, on the placement that the planner would choose for batches like
//! theirs.

use crate::exit::{Failure, Outcome, Sort};
use crate::feed::Feed;
use crate::pipeline::{Planned, Question, sorted};
use crate::serve_tables::{write_requests, write_series};
use crate::window::Window;
use hwprofiles::{DeviceKind, Machine, Seconds, write_atomically};
use planner::{Placement, Pricing, Programs};
use rayon::prelude::*;
use scenarios::{Formats, Routing, Serving, Slo};
use serde_json::{Value, json};
use sim::serving::{
    Account, Effort, End, Engine, Limits, Meter, NoRoom, Picos, Picture, PlanPrices, Replica, Router, Series,
    Served, Steps, Summary, Swap, Tally, Watch, kv_blocks, serve_fleet,
};
use std::path::Path;

/// What became of it.
pub struct ServedDay {
    /// Which model on which machine, and how.
    pub(crate) heading: String,
    /// The numbers.
    pub(crate) summary: Summary,
}

/// What is written beside the sums.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tables<'p> {
    /// A line for each request.
    pub requests: Option<&'p Path>,
    /// A line for each stretch of time, and how long that is.
    pub series: Option<(&'p Path, Seconds)>,
    /// A picture of a window of time.
    pub picture: Option<(&'p Path, Window)>,
}

/// Serves the question's requests, and writes the tables that are wanted.
pub fn run(question: &Question, serving: &Serving, tables: Tables<'_>) -> Outcome<ServedDay> {
    let choice = &question.engine;
    let habits = Habits {
        draft: Engine::of(choice, 1, question.model.max_positions),
        utilization: choice.gpu_memory_utilization.unwrap_or(sim::serving::GPU_MEMORY_UTILIZATION),
    };
    let Placed { machine, formats, placement } = placed(question, &habits)?;
    let pricing = Pricing { machine: &machine, model: &question.model, formats: &formats };
    let blocks = match (choice.num_blocks, habits.blocks(pricing, &placement)?) {
        (Some(blocks), _) | (None, Ok(blocks)) => blocks,
        (None, Err(full)) => return Err(Failure::Infeasible(full.into())),
    };
    let Engine { block_size, max_num_batched_tokens, .. } = habits.draft;
    let swap = choice
        .swap
        .as_ref()
        .map(|swap| Swap::of(swap, pricing, &placement, block_size, max_num_batched_tokens));
    let engine = Engine { num_blocks: blocks, swap: swap.transpose().or_input()?, ..habits.draft };
    let programs = Programs::lower(pricing.machine, pricing.model, &placement).or_input()?;
    let limits = Limits { ttft: question.slo.ttft, tpot: question.slo.tpot };
    // In turns, engines have nothing to do with each other: each is a group by itself.
    let groups = if serving.routing == Routing::RoundRobin { serving.replicas } else { 1 };
    let one = |share: u64| -> Outcome<Vec<Day<'_>>> {
        let engines = serving.replicas / groups;
        let mut replicas: Vec<_> =
            (0..engines).map(|_| Replica::new(engine.clone(), PlanPrices::new(pricing, &programs))).collect();
        let day = |_| Day::new(limits, tables, Meter::new(pricing, &programs));
        let mut days: Vec<_> = (0..engines).map(day).collect();
        let mut feed = Feed::of(serving, share, groups)?;
        let mut router = Router::new(serving.routing, serving.seed);
        serve_fleet(&mut feed, &mut replicas, &mut router, &mut (), &mut days).or_input()?;
        feed.wrong.map_or(Ok(days), Err).or_input()
    };
    let days: Vec<_> = (0..groups).into_par_iter().map(one).collect::<Outcome<_>>()?;
    let (mut effort, mut pictures) = (Effort::default(), Vec::new());
    let mut all: Option<Day<'_>> = None;
    for mut day in days.into_iter().flatten() {
        pictures.extend(day.picture.take());
        effort.join(&day.meter.effort().or_input()?);
        match &mut all {
            Some(all) => all.join(day),
            None => all = Some(day),
        }
    }
    let Day { tally, mut served, series, .. } = all.expect("there is an engine");
    if let (Some(path), Some(served)) = (tables.requests, &mut served) {
        write_requests(path, served).or_failed()?;
    }
    if let (Some((path, _)), Some(series)) = (tables.series, &series) {
        write_series(path, series, serving.replicas).or_failed()?;
    }
    if let Some((path, _)) = tables.picture {
        let name = format!("{} on {}", question.model.name, machine.name);
        let text = Picture::perfetto(&pictures, &name).or_input()?;
        write_atomically(path, text).or_failed()?;
    }
    let mut summary = tally.summary(0, 0);
    let duration = Seconds::new(summary.duration_s);
    let account = Account::of(&pricing, &programs, &question.costs, &effort, duration, serving.replicas);
    summary.account = Some(account);
    let heading = format!(
        "{} on {}{}: {}, {} KV blocks of {} tokens\n",
        question.model.name,
        machine.name,
        if serving.replicas > 1 { format!(" × {}", serving.replicas) } else { String::new() },
        choice.name.name(),
        engine.num_blocks,
        engine.block_size,
    );
    Ok(ServedDay { heading, summary })
}

/// An engine whose KV blocks are not counted yet.
struct Habits {
    draft: Engine,
    /// The share of a memory that it uses.
    utilization: f64,
}

impl Habits {
    fn blocks(&self, pricing: Pricing<'_>, placement: &Placement) -> Outcome<Result<u64, NoRoom>> {
        let Engine { block_size, max_num_batched_tokens, .. } = self.draft;
        kv_blocks(pricing, placement, block_size, max_num_batched_tokens, self.utilization).map_err(sorted)
    }
}

/// What the engines run.
struct Placed {
    machine: Machine,
    formats: Formats,
    placement: Placement,
}

/// Sequences whose KV cache must fit on a GPU for everything to be there.
const FEW: u64 = 8;

/// Everything on a GPU, or the smallest group of GPUs, that has room for it and a few sequences, in the formats of most bits;
/// otherwise what the planner chooses for a batch like those that will run, the largest for which there is a plan. The limits
/// are on requests, queueing included: the plan for a batch need not keep them.
fn placed(question: &Question, habits: &Habits) -> Outcome<Placed> {
    let (model, load) = (&question.model, &question.workload);
    let wanted = load.batch.min(FEW) * load.context().div_ceil(habits.draft.block_size);
    for machine in &question.machines {
        for id in machine.device_ids() {
            let device = machine.device(id);
            if device.kind != DeviceKind::Gpu {
                continue;
            }
            let placement = Placement::uniform(model, id, device.memory);
            let pricing = Pricing { machine, ..question.pricing() };
            if habits.blocks(pricing, &placement)?.is_ok_and(|blocks| blocks >= wanted) {
                return Ok(Placed { machine: machine.clone(), formats: *pricing.formats, placement });
            }
        }
    }
    let mut batch = load.batch;
    loop {
        let alike = Question { slo: Slo::default(), ..question.with_batch(batch) };
        match alike.plan() {
            Ok(Planned { plan, machine, placement, .. }) => {
                return Ok(Placed { machine, formats: plan.formats, placement });
            }
            Err(Failure::Infeasible(_)) if batch > 1 => batch /= 2,
            Err(failure) => return Err(failure),
        }
    }
}

/// What one engine's day is written down in.
struct Day<'a> {
    tally: Tally,
    meter: Meter<'a>,
    /// Every request, where a table of them is wanted.
    served: Option<Vec<Served>>,
    /// What happened when, where that is wanted.
    series: Option<Series>,
    /// What happened in a window, where that is wanted.
    picture: Option<Picture>,
}

impl<'a> Day<'a> {
    fn new(limits: Limits, tables: Tables<'_>, meter: Meter<'a>) -> Self {
        Self {
            tally: Tally::new(limits),
            meter,
            served: tables.requests.map(|_| Vec::new()),
            series: tables.series.map(|(_, every)| Series::new(Picos::rounding_up(every))),
            picture: tables.picture.map(|(_, window)| Picture::new(window.picos())),
        }
    }

    /// Joins that of another engine, but for what its meter says.
    fn join(&mut self, other: Self) {
        self.tally.join(&other.tally);
        if let (Some(all), Some(one)) = (&mut self.served, other.served) {
            all.extend(one);
        }
        if let (Some(all), Some(one)) = (&mut self.series, other.series) {
            all.join(one);
        }
    }
}

impl Watch for Day<'_> {
    fn steps(&mut self, steps: &Steps<'_>) {
        self.tally.steps(steps);
        self.meter.steps(steps);
        if let Some(series) = &mut self.series {
            series.steps(steps);
        }
        if let Some(picture) = &mut self.picture {
            picture.steps(steps);
        }
    }

    fn gaps(&mut self, gap: Picos, times: u64) {
        self.tally.gaps(gap, times);
    }

    fn preempted(&mut self) {
        self.tally.preempted();
    }

    fn swapped(&mut self, out: u64, back: u64) {
        self.tally.swapped(out, back);
    }

    fn end(&mut self, end: &End) {
        self.tally.end(end);
        if let (Some(all), End::Served(served)) = (&mut self.served, end) {
            all.push(*served);
        }
        if let Some(picture) = &mut self.picture {
            picture.end(end);
        }
    }
}

impl ServedDay {
    /// The numbers as JSON.
    pub fn json(&self) -> Value {
        json!(self.summary)
    }
}
