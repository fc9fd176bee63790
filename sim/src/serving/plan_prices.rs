//! Steps priced by a plan: its programs, with the tokens of many sequences in them.

use super::batch::{Batch, StepPrices};
use super::line::Line;
use super::picos::Picos;
use crate::run::sampling_time;
use crate::step::Simulator;
use hwprofiles::{DeviceId, Missing, Seconds};
use planner::{Action, Lane, Price, Pricing, Program, Programs, Task};
use scenarios::{Operator, Phase, Step, Sublayer};
use std::collections::{BTreeMap, HashMap};

/// Between neighbours of the numbers that steps are priced at, so many to the octave.
const TO_THE_OCTAVE: f64 = 16.0;

/// So many simulated batches are remembered; then all are forgotten, so that memory does not grow with the requests.
const REMEMBERED: usize = 1 << 16;

/// A plan's step prices.
///
/// Where everything runs on one device, whose kernels nobody issues one by one, a step is the sum of what depends on its tokens (priced at lengths 4 % apart,
/// straight between), on its chunks, on its decodes, and on its sampled sequences. Otherwise the program is simulated for
/// each different batch.
#[derive(Debug)]
pub struct PlanPrices<'a> {
    pricing: Pricing<'a>,
    programs: &'a Programs,
    simulator: Simulator<'a>,
    /// Of each phase, where all its tasks are on one lane and none waits for being issued: they, and how many of each there are.
    serial: [Option<Vec<(Task, f64)>>; 2],
    /// What of a step depends on its tokens alone, by phase and tokens.
    by_tokens: HashMap<(usize, u64), f64>,
    by_sampled: HashMap<(usize, u64), f64>,
    lines: HashMap<(u64, u32), Line>,
    simulated: HashMap<(Vec<super::Piece>, u64, u64, u64), Picos>,
}

impl<'a> PlanPrices<'a> {
    /// Those of `programs`.
    pub fn new(pricing: Pricing<'a>, programs: &'a Programs) -> Self {
        let issues = pricing.machine.devices.iter().any(|device| device.issue.is_some());
        Self {
            pricing,
            programs,
            simulator: Simulator::new(pricing),
            serial: [&programs.prefill, &programs.decode]
                .map(|program| alone(program).filter(|_| !issues).map(|_| kinds(program))),
            by_tokens: HashMap::new(),
            by_sampled: HashMap::new(),
            lines: HashMap::new(),
            simulated: HashMap::new(),
        }
    }

    /// Seconds of a batch in which somebody enters, or nobody.
    fn seconds(&mut self, phase: Phase, batch: &Batch<'_>) -> Result<f64, Missing> {
        let Some(tasks) = self.serial[phase as usize].take() else { return self.simulate(phase, batch) };
        let sum = self.sum(phase, &tasks, batch);
        self.serial[phase as usize] = Some(tasks);
        sum
    }

    fn sum(&mut self, phase: Phase, tasks: &[(Task, f64)], batch: &Batch<'_>) -> Result<f64, Missing> {
        let tokens = batch.tokens();
        let (low, high) = around(tokens);
        let mut dense = |at: u64| -> Result<f64, Missing> {
            if let Some(&known) = self.by_tokens.get(&(phase as usize, at)) {
                return Ok(known);
            }
            let of = |task: &Task| Follows::of(task) == Follows::Tokens;
            let sum = total(
                &self.pricing,
                tasks,
                of,
                &Batch { pieces: &[], decodes: at, decode_tokens: at, sampled: at },
            )?;
            self.by_tokens.insert((phase as usize, at), sum);
            Ok(sum)
        };
        let (first, last) = (dense(low)?, dense(high)?);
        let share = if low == high { 0.0 } else { (tokens - low) as f64 / (high - low) as f64 };
        let once = match self.by_sampled.get(&(phase as usize, batch.sampled)) {
            Some(&known) => known,
            None => {
                let program = self.programs.of(phase);
                let sampling = sampling_time(&self.pricing, program, &sampled(batch)).get();
                let sum = total(&self.pricing, tasks, |task| Follows::of(task) == Follows::Sampled, batch)?
                    + sampling;
                self.by_sampled.insert((phase as usize, batch.sampled), sum);
                sum
            }
        };
        let attends = |task: &Task| Follows::of(task) == Follows::Attended;
        Ok(first + (last - first) * share + once + total(&self.pricing, tasks, attends, batch)?)
    }

    /// How long a step of `batch` keeps each device busy, by device.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn busy(&mut self, batch: &Batch<'_>) -> Result<Vec<Seconds>, Missing> {
        let phase = if batch.pieces.is_empty() { Phase::Decode } else { Phase::Prefill };
        let mut busy = vec![Seconds::ZERO; self.pricing.machine.devices.len()];
        if let Some([(Task { lane: Lane::Device(device), .. }, _), ..]) =
            self.serial[phase as usize].as_deref()
        {
            let device = device.0;
            busy[device] = Seconds::new(self.seconds(phase, batch)?);
            return Ok(busy);
        }
        let (program, pricing) = (self.programs.of(phase), self.pricing);
        let outcome = self.simulator.step_by(program, |_| false, |task| price(&pricing, task, batch))?;
        for (task, span) in program.tasks.iter().zip(outcome.spans) {
            if let Lane::Device(device) = task.lane {
                busy[device.0] += (span.end - span.start).to_seconds();
            }
        }
        Ok(busy)
    }

    fn simulate(&mut self, phase: Phase, batch: &Batch<'_>) -> Result<f64, Missing> {
        let program = self.programs.of(phase);
        let pricing = self.pricing;
        let outcome = self.simulator.step_by(program, |_| false, |task| price(&pricing, task, batch))?;
        let sampling = sampling_time(&pricing, program, &sampled(batch));
        Ok((outcome.duration.to_seconds() + sampling).get())
    }
}

impl StepPrices for PlanPrices<'_> {
    fn step(&mut self, batch: &Batch<'_>) -> Result<Picos, Missing> {
        if self.serial[Phase::Prefill as usize].is_some() {
            return Ok(picos(self.seconds(Phase::Prefill, batch)?));
        }
        let key = (batch.pieces.to_vec(), batch.decodes, batch.decode_tokens, batch.sampled);
        if let Some(&known) = self.simulated.get(&key) {
            return Ok(known);
        }
        let time = picos(self.seconds(Phase::Prefill, batch)?);
        if self.simulated.len() == REMEMBERED {
            self.simulated.clear();
        }
        self.simulated.insert(key, time);
        Ok(time)
    }

    /// Straight between contexts of a quarter of an octave.
    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<Line, Missing> {
        const STRETCHES: f64 = 4.0;
        let mean = tokens as f64 / decodes as f64;
        let stretch = (mean.log2() * STRETCHES).floor().max(0.0) as u32;
        let end = |stretch: u32| (2f64.powf(f64::from(stretch) / STRETCHES) * decodes as f64).floor() as u64;
        // What is rounded down may be in the stretch before.
        let stretch = if tokens < end(stretch) { stretch - 1 } else { stretch };
        if let Some(&line) = self.lines.get(&(decodes, stretch))
            && line.from <= tokens
            && tokens < line.until
        {
            return Ok(line);
        }
        let (from, until) = (end(stretch).min(tokens), end(stretch + 1).max(tokens + 1));
        let mut at = |tokens: u64| {
            self.seconds(
                Phase::Decode,
                &Batch { pieces: &[], decodes, decode_tokens: tokens, sampled: decodes },
            )
        };
        let (low, high) = (at(from)?, at(until)?);
        let line = Line::through(from, picos(low), until, picos(high));
        self.lines.insert((decodes, stretch), line);
        Ok(line)
    }
}

fn picos(seconds: f64) -> Picos {
    Picos::rounding_up(Seconds::new(seconds))
}

/// The neighbours of `tokens` among the numbers that are priced: all up to 16, then so many to the octave.
fn around(tokens: u64) -> (u64, u64) {
    if tokens <= TO_THE_OCTAVE as u64 {
        return (tokens, tokens);
    }
    let octave = tokens.ilog2();
    let step = ((1u64 << octave) as f64 / TO_THE_OCTAVE).max(1.0) as u64;
    let low = tokens / step * step;
    (low, if low == tokens { low } else { low + step })
}

/// The program's different tasks with how many there are of each.
pub(super) fn kinds(program: &Program) -> Vec<(Task, f64)> {
    let mut counts: BTreeMap<String, (Task, f64)> = BTreeMap::new();
    for task in &program.tasks {
        let (lane, part) = (task.lane, task.micro_batch);
        let key = format!("{:?} {lane:?} {part:?} {}", task.action, task.layer.is_none());
        counts.entry(key).or_insert_with(|| (task.clone(), 0.0)).1 += 1.0;
    }
    counts.into_values().collect()
}

/// The device that computes everything, where one does.
pub(super) fn alone(program: &Program) -> Option<DeviceId> {
    let Lane::Device(device) = program.tasks.first()?.lane else { return None };
    let there =
        |task: &Task| task.lane == Lane::Device(device) && matches!(task.action, Action::Compute { .. });
    program.tasks.iter().all(there).then_some(device)
}

fn total(
    pricing: &Pricing<'_>,
    tasks: &[(Task, f64)],
    of: impl Fn(&Task) -> bool,
    batch: &Batch<'_>,
) -> Result<f64, Missing> {
    let mut sum = 0.0;
    for (task, count) in tasks.iter().filter(|(task, _)| of(task)) {
        sum += count * price(pricing, task, batch)?.alone.get();
    }
    Ok(sum)
}

/// What of a batch a task's work depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    /// Every chunk and the decodes, with the tokens before them.
    Attended,
    /// The tokens before all of them together.
    Past,
    /// How many sequences are sampled.
    Sampled,
    /// How many tokens enter.
    Tokens,
}

impl Follows {
    pub fn of(task: &Task) -> Self {
        match task.action {
            Action::Compute { operator: Operator::Attention, .. } => Self::Attended,
            Action::FetchKv { .. } => Self::Past,
            Action::StoreKv { .. } => Self::Tokens,
            Action::Compute { operator, .. } if operator.sublayer() == Sublayer::Head => Self::Sampled,
            Action::Compute { .. } => Self::Tokens,
            _ if task.layer.is_none() => Self::Sampled,
            _ => Self::Tokens,
        }
    }
}

/// A step of as many sequences as are sampled.
pub(super) fn sampled(batch: &Batch<'_>) -> Step {
    Step { phase: Phase::Decode, batch: batch.sampled, new_tokens: 1, past_tokens: 0 }
}

/// What `task` costs in a step of `batch`.
pub(super) fn price(pricing: &Pricing<'_>, task: &Task, batch: &Batch<'_>) -> Result<Price, Missing> {
    let past = |batch: &Batch<'_>| {
        batch.decode_tokens - batch.decodes + batch.pieces.iter().map(|piece| piece.past).sum::<u64>()
    };
    let rows = |batch: u64| Step { phase: Phase::Decode, batch, new_tokens: 1, past_tokens: 0 };
    match Follows::of(task) {
        Follows::Attended => attention(pricing, task, batch),
        Follows::Past => pricing.price(task, &Step { past_tokens: past(batch), ..rows(1) }),
        Follows::Sampled => pricing.price(task, &sampled(batch)),
        Follows::Tokens => pricing.price(task, &rows(batch.tokens())),
    }
}

/// Attention of each chunk and of the decodes, one after the other, started once. The decodes are as many sequences of the mean
/// context: what their attention takes is a matter of all their tokens.
fn attention(pricing: &Pricing<'_>, task: &Task, batch: &Batch<'_>) -> Result<Price, Missing> {
    let mut steps = Vec::with_capacity(batch.pieces.len() + 1);
    for piece in batch.pieces {
        let (new_tokens, past_tokens) = (piece.new, piece.past);
        steps.push(Step { phase: Phase::Prefill, batch: 1, new_tokens, past_tokens });
    }
    if let Some(past_tokens) = (batch.decode_tokens - batch.decodes).checked_div(batch.decodes) {
        steps.push(Step { phase: Phase::Decode, batch: batch.decodes, new_tokens: 1, past_tokens });
    }
    let mut all: Option<Price> = None;
    for step in &steps {
        let one = pricing.price(task, step)?;
        all = Some(match all {
            None => one,
            Some(sum) => join(sum, one),
        });
    }
    match all {
        Some(all) => Ok(all),
        None => pricing.price(task, &Step { phase: Phase::Decode, batch: 0, new_tokens: 1, past_tokens: 0 }),
    }
}

/// Both, started once.
fn join(one: Price, other: Price) -> Price {
    let loads = [0, 1, 2].map(|index| match (one.loads[index], other.loads[index]) {
        (Some(a), Some(b)) => Some(planner::Load { bytes: a.bytes + b.bytes, ..a }),
        (load, None) | (None, load) => load,
    });
    let longer = if other.alone > one.alone { other } else { one };
    Price { alone: one.alone + (other.alone - other.overhead), loads, flop: one.flop + other.flop, ..longer }
}
