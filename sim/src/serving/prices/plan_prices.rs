//! Step prices of a plan: the costs of its tasks for the tokens of many sequences.

use crate::clock::{SimTime, Tick};
use crate::serving::prices::batch::{Batch, PrefillChunk, StepPrices};
use crate::serving::prices::step_line::StepLine;
use crate::step::batch_run::sampling_time;
use crate::step::simulator::{Simulator, step_seconds};
use hwprofiles::{DeviceId, MissingRate, Seconds};
use planner::{Action, CostModel, Lane, MicroBatch, PhasePrograms, Program, Task, TaskCost};
use rustc_hash::FxHashMap;
use scenarios::{Operator, Phase, Step, Sublayer};
use std::collections::HashMap;

/// Steps are priced at this many token counts per octave, with straight lines between them.
const POINTS_PER_OCTAVE: f64 = 16.0;

/// The number of simulated batches that are remembered. Then all are forgotten, so that memory does
/// not grow with the number of requests.
const REMEMBERED: usize = 1 << 16;

/// A plan's step prices.
///
/// If everything runs on one device and no host issues its kernels one by one, a step's time is a
/// sum of four parts. They depend on its tokens (priced at lengths 4 % apart, straight in between),
/// its chunks, its decodes, and its sampled sequences. Otherwise the program is simulated for each
/// different batch.
#[derive(Debug)]
pub struct PlanPrices<'a> {
    cost_model: CostModel<'a>,
    programs: &'a PhasePrograms,
    simulator: Simulator<'a>,
    /// For each phase, the sums of its tasks, if its tasks run one after the other.
    serial_prefill: Option<SerialPrices>,
    serial_decode: Option<SerialPrices>,
    lines: HashMap<LineKey, StepLine>,
    simulated: HashMap<BatchKey, SimTime>,
}

/// The decode steps that one line covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LineKey {
    decodes: u64,
    /// The number of the stretch of mean contexts: a quarter of an octave each.
    stretch: u32,
}

/// A batch that owns its chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BatchKey {
    chunks: Vec<PrefillChunk>,
    decodes: u64,
    decode_tokens: u64,
    sampled: u64,
}

impl BatchKey {
    fn new(batch: &Batch<'_>) -> Self {
        let Batch { chunks, decodes, decode_tokens, sampled } = *batch;
        Self { chunks: chunks.to_vec(), decodes, decode_tokens, sampled }
    }
}

/// Prices of a program whose tasks run one after the other on one device.
#[derive(Debug)]
struct SerialPrices {
    device: DeviceId,
    /// The different tasks, with the count of each.
    tasks: Vec<(Task, f64)>,
    /// Seconds of the tasks that depend on the tokens alone, by tokens.
    by_tokens: HashMap<u64, f64>,
    /// Seconds of the tasks that depend on the sampled sequences alone, by sequences.
    by_sampled: HashMap<u64, f64>,
}

impl SerialPrices {
    fn new(program: &Program) -> Option<Self> {
        let device = only_device(program)?;
        let (by_tokens, by_sampled) = Default::default();
        Some(Self { device, tasks: task_kinds(program), by_tokens, by_sampled })
    }

    fn seconds(
        &mut self,
        cost_model: &CostModel<'_>,
        program: &Program,
        batch: &Batch<'_>,
    ) -> Result<f64, MissingRate> {
        let tokens = batch.tokens();
        let (low, high) = priced_neighbours(tokens);
        let (first, last) = (self.of_tokens(cost_model, low)?, self.of_tokens(cost_model, high)?);
        let share = if low == high { 0.0 } else { (tokens - low) as f64 / (high - low) as f64 };
        let once = match self.by_sampled.get(&batch.sampled) {
            Some(&known) => known,
            None => {
                let sampling = sampling_time(cost_model, program, &sampled_step(batch)).get();
                let sum = self.sum(cost_model, BatchDependence::SampledSequences, batch)? + sampling;
                self.by_sampled.insert(batch.sampled, sum);
                sum
            }
        };
        Ok(first + (last - first) * share + once + self.sum(cost_model, BatchDependence::Attention, batch)?)
    }

    /// Seconds of the tasks that depend on the tokens alone, for `tokens` tokens.
    fn of_tokens(&mut self, cost_model: &CostModel<'_>, tokens: u64) -> Result<f64, MissingRate> {
        if let Some(&known) = self.by_tokens.get(&tokens) {
            return Ok(known);
        }
        let batch = Batch { chunks: &[], decodes: tokens, decode_tokens: tokens, sampled: tokens };
        let sum = self.sum(cost_model, BatchDependence::NewTokens, &batch)?;
        self.by_tokens.insert(tokens, sum);
        Ok(sum)
    }

    /// Seconds of the tasks with this dependence.
    fn sum(
        &self,
        cost_model: &CostModel<'_>,
        dependence: BatchDependence,
        batch: &Batch<'_>,
    ) -> Result<f64, MissingRate> {
        let mut sum = 0.0;
        for (task, count) in &self.tasks {
            if BatchDependence::from_task(task) == dependence {
                sum += count * task_price(cost_model, task, batch)?.alone.get();
            }
        }
        Ok(sum)
    }
}

impl<'a> PlanPrices<'a> {
    /// The prices of `programs`.
    pub fn new(cost_model: CostModel<'a>, programs: &'a PhasePrograms) -> Self {
        let issues = cost_model.machine.devices.iter().any(|device| device.issue.is_some());
        let serial = |program| if issues { None } else { SerialPrices::new(program) };
        Self {
            cost_model,
            programs,
            simulator: Simulator::new(cost_model),
            serial_prefill: serial(&programs.prefill),
            serial_decode: serial(&programs.decode),
            lines: HashMap::new(),
            simulated: HashMap::new(),
        }
    }

    fn serial(&mut self, phase: Phase) -> Option<&mut SerialPrices> {
        match phase {
            Phase::Prefill => self.serial_prefill.as_mut(),
            Phase::Decode => self.serial_decode.as_mut(),
        }
    }

    /// Seconds of a batch with the program of `phase`.
    fn seconds(&mut self, phase: Phase, batch: &Batch<'_>) -> Result<f64, MissingRate> {
        let (cost_model, program) = (self.cost_model, self.programs.program(phase));
        match self.serial(phase) {
            Some(serial) => serial.seconds(&cost_model, program, batch),
            None => self.simulate(phase, batch),
        }
    }

    /// How long a step of `batch` keeps each device busy, by device.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn device_times(&mut self, batch: &Batch<'_>) -> Result<Vec<Seconds>, MissingRate> {
        let phase = if batch.chunks.is_empty() { Phase::Decode } else { Phase::Prefill };
        let mut busy = vec![Seconds::ZERO; self.cost_model.machine.devices.len()];
        if let Some(device) = self.serial(phase).map(|serial| serial.device) {
            busy[device.0] = Seconds::new(self.seconds(phase, batch)?);
            return Ok(busy);
        }
        let (program, cost_model) = (self.programs.program(phase), self.cost_model);
        let price = |task: &Task| task_price(&cost_model, task, batch);
        let outcome = self.simulator.step_priced_by(program, |_| false, price)?;
        for (task, span) in program.tasks.iter().zip(outcome.spans) {
            if let Lane::Device(device) = task.lane {
                busy[device.0] += step_seconds(span.end - span.start);
            }
        }
        Ok(busy)
    }

    fn simulate(&mut self, phase: Phase, batch: &Batch<'_>) -> Result<f64, MissingRate> {
        let program = self.programs.program(phase);
        let cost_model = self.cost_model;
        let price = |task: &Task| task_price(&cost_model, task, batch);
        let outcome = self.simulator.step_priced_by(program, |_| false, price)?;
        let sampling = sampling_time(&cost_model, program, &sampled_step(batch));
        Ok((outcome.seconds() + sampling).get())
    }
}

impl StepPrices for PlanPrices<'_> {
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, MissingRate> {
        if self.serial_prefill.is_some() {
            return Ok(sim_time(self.seconds(Phase::Prefill, batch)?));
        }
        let key = BatchKey::new(batch);
        if let Some(&known) = self.simulated.get(&key) {
            return Ok(known);
        }
        let time = sim_time(self.seconds(Phase::Prefill, batch)?);
        if self.simulated.len() == REMEMBERED {
            self.simulated.clear();
        }
        self.simulated.insert(key, time);
        Ok(time)
    }

    /// A straight line over mean contexts of a quarter of an octave.
    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, MissingRate> {
        const STRETCHES: f64 = 4.0;
        let mean = tokens as f64 / decodes as f64;
        let stretch = (mean.log2() * STRETCHES).floor().max(0.0) as u32;
        let end = |stretch: u32| (2f64.powf(f64::from(stretch) / STRETCHES) * decodes as f64).floor() as u64;
        // Rounding down may have moved the tokens to the stretch before.
        let stretch = if tokens < end(stretch) { stretch - 1 } else { stretch };
        let key = LineKey { decodes, stretch };
        if let Some(&line) = self.lines.get(&key)
            && line.from <= tokens
            && tokens < line.until
        {
            return Ok(line);
        }
        let (from, until) = (end(stretch).min(tokens), end(stretch + 1).max(tokens + 1));
        let mut at = |tokens: u64| {
            let batch = Batch { chunks: &[], decodes, decode_tokens: tokens, sampled: decodes };
            self.seconds(Phase::Decode, &batch)
        };
        let (low, high) = (at(from)?, at(until)?);
        let line = StepLine::through(from, sim_time(low), until, sim_time(high));
        self.lines.insert(key, line);
        Ok(line)
    }
}

fn sim_time(seconds: f64) -> SimTime {
    SimTime::rounding_up(Seconds::new(seconds), Tick::Picosecond)
}

/// The token counts next to `tokens` that are priced: all up to 16, then [`POINTS_PER_OCTAVE`].
fn priced_neighbours(tokens: u64) -> (u64, u64) {
    if tokens <= POINTS_PER_OCTAVE as u64 {
        return (tokens, tokens);
    }
    let octave = tokens.ilog2();
    let step = ((1u64 << octave) as f64 / POINTS_PER_OCTAVE).max(1.0) as u64;
    let low = tokens / step * step;
    (low, if low == tokens { low } else { low + step })
}

/// What tasks have in common that cost the same in every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TaskKindKey<'p> {
    action: &'p Action,
    lane: Lane,
    micro_batch: MicroBatch,
    /// Whether the task belongs to no layer, as those of the embedding and the head.
    outside_layers: bool,
}

impl<'p> TaskKindKey<'p> {
    fn new(task: &'p Task) -> Self {
        let outside_layers = task.layer.is_none();
        Self { action: &task.action, lane: task.lane, micro_batch: task.micro_batch, outside_layers }
    }
}

/// The program's different tasks with the count of each.
///
/// They are in the order of their debug texts. Sums of floats depend on the order, and this one
/// stays the same when the lowering emits its tasks in another order.
pub(crate) fn task_kinds(program: &Program) -> Vec<(Task, f64)> {
    let mut index_of: FxHashMap<TaskKindKey<'_>, usize> = FxHashMap::default();
    let mut kinds: Vec<(TaskKindKey<'_>, &Task, f64)> = Vec::new();
    for task in &program.tasks {
        let key = TaskKindKey::new(task);
        let index = *index_of.entry(key).or_insert_with(|| {
            kinds.push((key, task, 0.0));
            kinds.len() - 1
        });
        kinds[index].2 += 1.0;
    }
    kinds.sort_by_cached_key(|(key, ..)| {
        let TaskKindKey { action, lane, micro_batch, outside_layers } = key;
        format!("{action:?} {lane:?} {micro_batch:?} {outside_layers}")
    });
    kinds.into_iter().map(|(_, task, count)| (task.clone(), count)).collect()
}

/// The device that computes everything, if there is only one and nothing is transferred.
pub(crate) fn only_device(program: &Program) -> Option<DeviceId> {
    let Lane::Device(device) = program.tasks.first()?.lane else { return None };
    let computes_there =
        |task: &Task| task.lane == Lane::Device(device) && matches!(task.action, Action::Compute { .. });
    program.tasks.iter().all(computes_there).then_some(device)
}

/// The part of a batch that a task's work depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchDependence {
    /// Every chunk and the decodes, with the tokens before them.
    Attention,
    /// The tokens before all of them together.
    PastTokens,
    /// The number of sampled sequences.
    SampledSequences,
    /// The number of tokens that enter.
    NewTokens,
}

impl BatchDependence {
    pub fn from_task(task: &Task) -> Self {
        match task.action {
            Action::Compute { operator: Operator::Attention, .. } => Self::Attention,
            Action::FetchKv { .. } => Self::PastTokens,
            Action::StoreKv { .. } => Self::NewTokens,
            Action::Compute { operator, .. } if operator.sublayer() == Sublayer::Head => {
                Self::SampledSequences
            }
            Action::Compute { .. } => Self::NewTokens,
            _ if task.layer.is_none() => Self::SampledSequences,
            _ => Self::NewTokens,
        }
    }
}

/// A decode step with as many sequences as `batch` samples.
pub(crate) fn sampled_step(batch: &Batch<'_>) -> Step {
    Step { phase: Phase::Decode, batch: batch.sampled, new_tokens: 1, past_tokens: 0 }
}

/// The price of `task` in a step of `batch`.
pub(crate) fn task_price(
    cost_model: &CostModel<'_>,
    task: &Task,
    batch: &Batch<'_>,
) -> Result<TaskCost, MissingRate> {
    let past = |batch: &Batch<'_>| {
        batch.decode_tokens - batch.decodes + batch.chunks.iter().map(|chunk| chunk.past).sum::<u64>()
    };
    let rows = |batch: u64| Step { phase: Phase::Decode, batch, new_tokens: 1, past_tokens: 0 };
    match BatchDependence::from_task(task) {
        BatchDependence::Attention => attention_price(cost_model, task, batch),
        BatchDependence::PastTokens => {
            cost_model.task_cost(task, &Step { past_tokens: past(batch), ..rows(1) })
        }
        BatchDependence::SampledSequences => cost_model.task_cost(task, &sampled_step(batch)),
        BatchDependence::NewTokens => cost_model.task_cost(task, &rows(batch.tokens())),
    }
}

/// The price of attention of each chunk and of the decodes, one after the other, launched once. The
/// decodes count as sequences of the mean context, because the time of their attention depends on
/// the sum of their tokens.
fn attention_price(
    cost_model: &CostModel<'_>,
    task: &Task,
    batch: &Batch<'_>,
) -> Result<TaskCost, MissingRate> {
    let mut steps = Vec::with_capacity(batch.chunks.len() + 1);
    for chunk in batch.chunks {
        let (new_tokens, past_tokens) = (chunk.new, chunk.past);
        steps.push(Step { phase: Phase::Prefill, batch: 1, new_tokens, past_tokens });
    }
    if let Some(past_tokens) = (batch.decode_tokens - batch.decodes).checked_div(batch.decodes) {
        steps.push(Step { phase: Phase::Decode, batch: batch.decodes, new_tokens: 1, past_tokens });
    }
    let mut all: Option<TaskCost> = None;
    for step in &steps {
        let one = cost_model.task_cost(task, step)?;
        all = Some(match all {
            None => one,
            Some(sum) => sum_launched_once(sum, one),
        });
    }
    match all {
        Some(all) => Ok(all),
        None => cost_model
            .task_cost(task, &Step { phase: Phase::Decode, batch: 0, new_tokens: 1, past_tokens: 0 }),
    }
}

/// The price of both, launched once.
fn sum_launched_once(one: TaskCost, other: TaskCost) -> TaskCost {
    let loads = [0, 1, 2].map(|index| match (one.loads[index], other.loads[index]) {
        (Some(a), Some(b)) => Some(planner::BandwidthUse { bytes: a.bytes + b.bytes, ..a }),
        (load, None) | (None, load) => load,
    });
    let longer = if other.alone > one.alone { other } else { one };
    TaskCost {
        alone: one.alone + (other.alone - other.overhead),
        loads,
        flop: one.flop + other.flop,
        ..longer
    }
}
