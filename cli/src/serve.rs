//! A serving scenario: engines that answer requests, on the placement that the planner would choose for batches like
//! theirs.

use crate::exit::{Failure, Outcome, Sort};
use crate::pipeline::{Planned, Question, sorted};
use anyhow::anyhow;
use hwprofiles::{DeviceKind, Machine, Seconds, write_atomically};
use planner::{Placement, Pricing, Programs};
use rayon::prelude::*;
use scenarios::{Formats, RequestTrace, Requests, Serving, Slo, TraceError};
use serde_json::{Value, json};
use sim::serving::{
    End, Engine, Generated, Limits, NoRoom, Picos, PlanPrices, Replica, Request, Series, Served, Source,
    Spread, Steps, Stretch, Summary, Tally, Watch, kv_blocks, serve,
};
use std::fmt::{self, Write};
use std::fs::File;
use std::io::BufReader;
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
    let engine = Engine { num_blocks: blocks, ..habits.draft };
    let programs = Programs::lower(pricing.machine, pricing.model, &placement).or_input()?;
    let limits = Limits { ttft: question.slo.ttft, tpot: question.slo.tpot };
    let one = |share: u64| -> Outcome<Day> {
        let mut replica = Replica::new(engine.clone(), PlanPrices::new(pricing, &programs));
        let series = tables.series.map(|(_, every)| Series::new(Picos::rounding_up(every)));
        let served = tables.requests.map(|_| Vec::new());
        let mut day = Day { tally: Tally::new(limits), served, series };
        let mut feed = Feed::of(serving, share)?;
        serve(&mut feed, &mut replica, &mut day).or_input()?;
        feed.wrong.map_or(Ok(day), Err).or_input()
    };
    let days: Vec<_> = (0..serving.replicas).into_par_iter().map(one).collect();
    let (mut tally, mut served) = (Tally::new(limits), Vec::new());
    let mut series: Option<Series> = None;
    for day in days {
        let day = day?;
        tally.join(&day.tally);
        served.extend(day.served.into_iter().flatten());
        match (&mut series, day.series) {
            (Some(all), Some(one)) => all.join(one),
            (all, one) => *all = one,
        }
    }
    if let Some(path) = tables.requests {
        served.sort_by_key(|one| one.id);
        write_table(path, &served).or_failed()?;
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

    fn end(&mut self, end: &End) {
        self.tally.end(end);
        if let (Some(all), End::Served(served)) = (&mut self.served, end) {
            all.push(*served);
        }
    }
}

/// The requests of one of several engines: every so-manieth that comes, or the requests of its share of the users.
struct Feed {
    requests: Generator,
    share: u64,
    of: u64,
    /// Whether they are its users' own, numbered from zero.
    own: bool,
    /// What was wrong with the table.
    wrong: Option<TraceError>,
}

enum Generator {
    Made(Generated),
    Read { trace: RequestTrace<BufReader<File>>, left: u64, speedup: f64, next: u64 },
}

impl Feed {
    fn of(serving: &Serving, share: u64) -> Outcome<Self> {
        let (seed, of) = (serving.seed, serving.replicas);
        let part = |whole: u64| whole / of + u64::from(share < whole % of);
        let requests = match &serving.requests {
            &Requests::Closed { concurrency, requests, prompt, output } => {
                let made = Generated::closed(part(concurrency), part(requests), prompt, output, seed + share);
                return Ok(Self { requests: Generator::Made(made), share, of, own: true, wrong: None });
            }
            &Requests::Open { arrivals, requests, prompt, output } => {
                Generator::Made(Generated::open(arrivals, requests, prompt, output, seed))
            }
            Requests::Trace { path, requests, speedup } => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| Failure::Input(anyhow!("{name}: {error}")))?;
                let trace = RequestTrace::new(BufReader::new(file), &name).or_input()?;
                Generator::Read { trace, left: requests.unwrap_or(u64::MAX), speedup: *speedup, next: 0 }
            }
        };
        Ok(Self { requests, share, of, own: false, wrong: None })
    }

    fn any(&mut self) -> Option<Request> {
        let (trace, left, speedup, next) = match &mut self.requests {
            Generator::Made(made) => return made.next(),
            Generator::Read { trace, left, speedup, next } => (trace, left, *speedup, next),
        };
        *left = left.checked_sub(1)?;
        let id = *next;
        *next += 1;
        match trace.next()? {
            Ok(row) => Some(Request {
                id,
                arrival: Picos::rounding_up(row.at / speedup),
                prompt_tokens: row.prompt_tokens,
                output_tokens: row.output_tokens,
                prefix: row.prefix,
            }),
            Err(wrong) => {
                self.wrong = Some(wrong);
                None
            }
        }
    }
}

impl Source for Feed {
    fn next(&mut self) -> Option<Request> {
        loop {
            let request = self.any()?;
            if self.own {
                return Some(Request { id: request.id * self.of + self.share, ..request });
            }
            if request.id % self.of == self.share {
                return Some(request);
            }
        }
    }

    fn done(&mut self, at: Picos) {
        if let Generator::Made(made) = &mut self.requests {
            made.done(at);
        }
    }
}

/// One line for each request, in the order of their numbers; times in seconds.
fn write_table(path: &Path, served: &[Served]) -> anyhow::Result<()> {
    let mut text = String::from(
        "request,arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,last_token_s,ttft_s,tpot_s,e2el_s,\
         cached_tokens,preemptions\n",
    );
    for one in served {
        let [arrival, scheduled, first, last, ttft, e2el] =
            [one.arrival, one.scheduled, one.first_token, one.last_token, one.ttft(), one.e2el()]
                .map(|time| time.to_seconds().get());
        let tpot = one.tpot().map_or(String::new(), |tpot| tpot.to_seconds().get().to_string());
        let Served { id, prompt_tokens, output_tokens, cached_tokens, preemptions, .. } = one;
        writeln!(
            text,
            "{id},{arrival},{prompt_tokens},{output_tokens},{scheduled},{first},{last},{ttft},{tpot},{e2el},\
             {cached_tokens},{preemptions}"
        )?;
    }
    Ok(write_atomically(path, text)?)
}

/// One line for each stretch of time, in order; `metrics.md` says what the columns are.
fn write_series(path: &Path, series: &Series, replicas: u64) -> anyhow::Result<()> {
    let every = series.every().to_seconds().get();
    let mut text = String::from(
        "start_s,steps,utilization,mean_running,mean_waiting,prompt_tokens_per_s,output_tokens_per_s,least_free_blocks\n",
    );
    for (index, stretch) in series.stretches().iter().enumerate() {
        let Stretch { steps, busy, running, waiting, prompt_tokens, output_tokens, least_free_blocks } =
            stretch;
        writeln!(
            text,
            "{},{steps:.3},{:.6},{:.6},{:.6},{:.3},{:.3},{}",
            index as f64 * every,
            busy / every / replicas as f64,
            running / every,
            waiting / every,
            prompt_tokens / every,
            output_tokens / every,
            least_free_blocks.map_or(String::new(), |blocks| blocks.to_string()),
        )?;
    }
    Ok(write_atomically(path, text)?)
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
        )
    }
}
