//! A serving scenario: engines that answer requests, on the placement that the planner would choose for batches like
//! theirs.

use crate::exit::{Failure, Outcome, Sort};
use crate::feed::Feed;
use crate::pipeline::{Planned, Question, sorted};
use crate::serve_tables::{write_requests, write_series};
use hwprofiles::{DeviceKind, Machine, Seconds};
use planner::{Placement, Pricing, Programs};
use rayon::prelude::*;
use scenarios::{Formats, Routing, Serving, Slo};
use serde_json::{Value, json};
use sim::serving::{
    End, Engine, Limits, NoRoom, Picos, PlanPrices, Replica, Router, Series, Served, Spread, Steps, Summary,
    Swap, Tally, Watch, kv_blocks, serve_fleet,
};
use std::fmt;
use std::path::Path;

/// What became of it.
pub struct ServedDay {
    /// Which model on which machine, and how.
    heading: String,
    /// The numbers.
    summary: Summary,
}

/// What is written beside the sums.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tables<'p> {
    /// A line for each request.
    pub requests: Option<&'p Path>,
    /// A line for each stretch of time, and how long that is.
    pub series: Option<(&'p Path, Seconds)>,
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
    let one = |share: u64| -> Outcome<Vec<Day>> {
        let engines = serving.replicas / groups;
        let mut replicas: Vec<_> =
            (0..engines).map(|_| Replica::new(engine.clone(), PlanPrices::new(pricing, &programs))).collect();
        let mut days: Vec<_> = (0..engines).map(|_| Day::new(limits, tables)).collect();
        let mut feed = Feed::of(serving, share, groups)?;
        let mut router = Router::new(serving.routing, serving.seed);
        serve_fleet(&mut feed, &mut replicas, &mut router, &mut (), &mut days).or_input()?;
        feed.wrong.map_or(Ok(days), Err).or_input()
    };
    let days: Vec<_> = (0..groups).into_par_iter().map(one).collect::<Outcome<_>>()?;
    let (mut tally, mut served) = (Tally::new(limits), Vec::new());
    let mut series: Option<Series> = None;
    for day in days.into_iter().flatten() {
        tally.join(&day.tally);
        served.extend(day.served.into_iter().flatten());
        match (&mut series, day.series) {
            (Some(all), Some(one)) => all.join(one),
            (all, one) => *all = one,
        }
    }
    if let Some(path) = tables.requests {
        served.sort_by_key(|one| one.id);
        write_requests(path, &served).or_failed()?;
    }
    if let (Some((path, _)), Some(series)) = (tables.series, &series) {
        write_series(path, series, serving.replicas).or_failed()?;
    }
    let summary = tally.summary(0, 0);
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
struct Day {
    tally: Tally,
    /// Every request, where a table of them is wanted.
    served: Option<Vec<Served>>,
    /// What happened when, where that is wanted.
    series: Option<Series>,
}

impl Day {
    fn new(limits: Limits, tables: Tables<'_>) -> Self {
        Self {
            tally: Tally::new(limits),
            served: tables.requests.map(|_| Vec::new()),
            series: tables.series.map(|(_, every)| Series::new(Picos::rounding_up(every))),
        }
    }
}

impl Watch for Day {
    fn steps(&mut self, steps: &Steps<'_>) {
        self.tally.steps(steps);
        if let Some(series) = &mut self.series {
            series.steps(steps);
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
    }
}

impl ServedDay {
    /// The numbers as JSON.
    pub fn json(&self) -> Value {
        json!(self.summary)
    }
}

impl fmt::Display for ServedDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { requests, .. } = &self.summary;
        let day = &self.summary;
        write!(f, "{}", self.heading)?;
        write!(f, "{} requests answered in {}", requests.completed, Seconds::new(day.duration_s))?;
        match requests.rejected {
            0 => writeln!(f)?,
            rejected => {
                let why: Vec<_> = requests.rejected_for.iter().map(|(why, n)| format!("{n} {why}")).collect();
                writeln!(f, ", {rejected} rejected ({})", why.join(", "))?;
            }
        }
        let columns = ["", "mean", "p50", "p90", "p99", "max"];
        let row = |cells: [String; 6]| {
            let [name, rest @ ..] = cells;
            rest.iter().fold(format!("  {name:<6}"), |row, cell| row + &format!(" {cell:>12}"))
        };
        writeln!(f, "{}", row(columns.map(str::to_owned)))?;
        for (name, spread) in
            [("TTFT", day.ttft_s), ("TPOT", day.tpot_s), ("ITL", day.itl_s), ("E2EL", day.e2el_s)]
        {
            let Spread { mean, p50, p90, p99, max, .. } = spread;
            let times = [mean, p50, p90, p99, max].map(|time| Seconds::new(time).to_string());
            let [mean, p50, p90, p99, max] = times;
            writeln!(f, "{}", row([name.to_owned(), mean, p50, p90, p99, max]))?;
        }
        writeln!(
            f,
            "output {:.1} tokens/s, {:.2} requests/s, {:.2} within the limits ({:.1} %)",
            day.output_tokens_per_s,
            day.requests_per_s,
            day.goodput_per_s,
            day.slo_attainment * 100.0
        )?;
        writeln!(
            f,
            "{} steps of {:.1} sequences, busy {:.1} %, {} preemptions, {:.1} % of prompts cached",
            day.steps,
            day.mean_batch,
            day.utilization * 100.0,
            day.preemptions,
            day.cached_share * 100.0
        )?;
        match day.swapped_out_blocks {
            0 => Ok(()),
            out => writeln!(f, "{out} KV blocks swapped out, {} back", day.swapped_in_blocks),
        }
    }
}
