//! A serving scenario: engines that answer requests, on the placement that the planner would choose for batches like
//! theirs.

use crate::day::Day;
use crate::engines::{Course, Engines};
use crate::exit::{Failure, Outcome, Sort};
use crate::pipeline::{Planned, Question, sorted};
use crate::rebalance::{self, Rebalanced};
use crate::serve_tables::{write_requests, write_series};
use crate::window::Window;
use hwprofiles::{DeviceKind, Machine, Seconds, write_atomically};
use planner::{Placement, Pricing};
use scenarios::{EngineChoice, Formats, Serving, Slo};
use serde_json::{Value, json};
use sim::serving::{Account, Effort, Engine, NoRoom, Picture, Summary, Swap, kv_blocks};
use std::path::Path;

/// What became of it.
pub struct ServedDay {
    /// Which model on which machine, and how.
    pub(crate) heading: String,
    /// What the engines run: everything on one device, or what the planner chose.
    pub(crate) plan: String,
    /// What each of them is.
    pub(crate) engine: Engine,
    /// The numbers.
    pub(crate) summary: Summary,
    /// What rebalancing was worth.
    pub(crate) rebalanced: Option<Rebalanced>,
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

/// Serves the question's requests where the planner would place them, and writes the tables that are wanted.
pub fn run(question: &Question, serving: &Serving, tables: Tables<'_>) -> Outcome<ServedDay> {
    run_on(question, serving, Placed::of(question)?, tables)
}

/// The same where somebody has placed them.
pub fn run_on(
    question: &Question,
    serving: &Serving,
    placed: Placed,
    tables: Tables<'_>,
) -> Outcome<ServedDay> {
    let (choice, habits) = (&question.engine, Habits::of(question));
    let Placed { machine, formats, placement, chosen, engines: each } = placed;
    let machines = serving.replicas;
    let serving = &Serving { replicas: machines * each, ..serving.clone() };
    let plan = format!("{chosen}, {formats}");
    let pricing = Pricing { machine: &machine, model: &question.model, formats: &formats };
    let engine = habits.engine(pricing, &placement)?.map_err(|full| Failure::Infeasible(full.into()))?;
    let mut courses = vec![Course { name: "the scenario's load".to_owned(), placement, engine }];
    if serving.rebalance {
        let engine = |placement: &Placement| Ok(habits.engine(pricing, placement)?.ok());
        rebalance::add_courses(&mut courses, question, pricing, habits.utilization, &engine)?;
    }
    let engines = Engines::new(question, serving, machine.clone(), formats, courses)?;
    let (days, rebalanced) = match serving.rebalance {
        true => Rebalanced::day(&engines, tables).map(|(days, rebalanced)| (days, Some(rebalanced)))?,
        false => (engines.day(0, tables, None)?.0, None),
    };
    let (mut effort, mut pictures) = (Effort::default(), Vec::new());
    let mut all: Option<Day<'_>> = None;
    for mut day in days {
        pictures.extend(day.picture.take());
        effort.join(&day.effort().or_input()?);
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
    let account =
        Account::of(&pricing, engines.programs(0), &question.costs, &effort, duration, [machines, each]);
    summary.account = Some(account);
    let engine = engines.engine(0);
    let heading = format!(
        "{} on {}{}: {}, {} KV blocks of {} tokens\n",
        question.model.name,
        machine.name,
        if machines > 1 { format!(" × {machines}") } else { String::new() },
        choice.name.name(),
        engine.num_blocks,
        engine.block_size,
    );
    Ok(ServedDay { heading, plan, engine, summary, rebalanced })
}

/// An engine whose KV blocks are not counted yet.
struct Habits<'q> {
    choice: &'q EngineChoice,
    draft: Engine,
    /// The share of a memory that it uses.
    utilization: f64,
}

impl<'q> Habits<'q> {
    fn of(question: &'q Question) -> Self {
        let choice = &question.engine;
        Self {
            choice,
            draft: Engine::of(choice, 1, question.model.max_positions),
            utilization: choice.gpu_memory_utilization.unwrap_or(sim::serving::GPU_MEMORY_UTILIZATION),
        }
    }

    /// The engine on `placement`.
    fn engine(&self, pricing: Pricing<'_>, placement: &Placement) -> Outcome<Result<Engine, NoRoom>> {
        let Engine { block_size, max_num_batched_tokens, .. } = self.draft;
        let blocks = match (self.choice.num_blocks, self.blocks(pricing, placement)?) {
            (Some(blocks), _) | (None, Ok(blocks)) => blocks,
            (None, Err(full)) => return Ok(Err(full)),
        };
        let swap = self.choice.swap.as_ref();
        let swap = swap.map(|swap| Swap::of(swap, pricing, placement, block_size, max_num_batched_tokens));
        let prefixes = self.choice.prefix_cache.as_ref();
        let prefixes = prefixes.map(|choice| {
            Swap::of_prefixes(choice, self.choice.swap.as_ref(), pricing, placement, &self.draft)
        });
        let swap = swap.transpose().or_input()?;
        let second_level = prefixes.transpose().or_input()?;
        Ok(Ok(Engine { num_blocks: blocks, swap, second_level, ..self.draft.clone() }))
    }

    fn blocks(&self, pricing: Pricing<'_>, placement: &Placement) -> Outcome<Result<u64, NoRoom>> {
        let Engine { block_size, max_num_batched_tokens, .. } = self.draft;
        kv_blocks(pricing, placement, block_size, max_num_batched_tokens, self.utilization).map_err(sorted)
    }
}

/// What the engines run.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The machine.
    pub machine: Machine,
    /// The number formats.
    pub formats: Formats,
    /// What is where.
    pub placement: Placement,
    /// In a word, what was chosen.
    pub chosen: String,
    /// Engines alike side by side on the machine, each on a GPU or group of GPUs of its own.
    pub engines: u64,
}

/// Sequences whose KV cache must fit on a GPU for everything to be there.
const FEW: u64 = 8;

impl Placed {
    /// Everything on a GPU, or the smallest group of GPUs, that has room for it and a few sequences, in the formats of most bits;
    /// otherwise what the planner chooses for a batch like those that will run, the largest for which there is a plan. The limits
    /// are on requests, queueing included: the plan for a batch need not keep them.
    pub fn of(question: &Question) -> Outcome<Self> {
        for machine in question.machines.iter() {
            if let Some(placed) = Self::on_a_gpu(question, machine)? {
                return Ok(placed);
            }
        }
        Self::planned(question)
    }

    /// Each way to use all GPUs of the machine: in groups of every size that has room for everything, an engine on each; what
    /// [`Placed::of`] says where none has.
    pub fn ways(question: &Question) -> Outcome<Vec<Self>> {
        let mut ways = Vec::new();
        for machine in question.machines.iter() {
            let Some(mut placed) = Self::on_a_gpu(question, machine)? else { continue };
            let groups = machine.twins();
            // One that is on a GPU of another kind is alone.
            if groups.iter().any(|&id| machine.device(id).memory == placed.placement.head[0].home) {
                placed.engines = groups.len() as u64;
            }
            if placed.engines > 1 {
                let gpus = match machine.tensor_parallel() {
                    1 => "a GPU".to_owned(),
                    ranks => format!("{ranks} GPUs as one"),
                };
                placed.chosen = format!("{} side by side, each on {gpus}", placed.engines);
            }
            ways.push(placed);
        }
        Ok(if ways.is_empty() { vec![Self::planned(question)?] } else { ways })
    }

    /// Everything on the first GPU, or group of GPUs, of `machine` that has room.
    fn on_a_gpu(question: &Question, machine: &Machine) -> Outcome<Option<Self>> {
        let habits = Habits::of(question);
        let (model, load) = (&question.model, &question.workload);
        let wanted = load.batch.min(FEW) * load.context().div_ceil(habits.draft.block_size);
        for id in machine.device_ids().filter(|&id| machine.device(id).kind == DeviceKind::Gpu) {
            let device = machine.device(id);
            let placement = Placement::uniform(model, id, device.memory);
            let pricing = Pricing { machine, ..question.pricing() };
            if habits.blocks(pricing, &placement)?.is_ok_and(|blocks| blocks >= wanted) {
                let chosen = format!("all on {}", device.name);
                let (machine, formats) = (machine.clone(), *pricing.formats);
                return Ok(Some(Self { machine, formats, placement, chosen, engines: 1 }));
            }
        }
        Ok(None)
    }

    fn planned(question: &Question) -> Outcome<Self> {
        let mut batch = question.workload.batch;
        loop {
            let alike = Question { slo: Slo::default(), ..question.with_batch(batch) };
            match alike.plan() {
                Ok(Planned { plan, machine, placement, .. }) => {
                    let chosen = plan.predicted.chosen;
                    return Ok(Self { machine, formats: plan.formats, placement, chosen, engines: 1 });
                }
                Err(Failure::Infeasible(_)) if batch > 1 => batch /= 2,
                Err(failure) => return Err(failure),
            }
        }
    }
}

impl ServedDay {
    /// The numbers as JSON.
    pub fn json(&self) -> Value {
        let mut numbers = json!(self.summary);
        if let Some(rebalanced) = &self.rebalanced {
            numbers["rebalancing"] = rebalanced.json();
        }
        numbers
    }
}
