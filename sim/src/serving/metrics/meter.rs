//! The machine's resources that steps use: FLOP, bytes through memories and links, time of devices.
//!
//! Nothing is priced while the engine works. A task's work in a step depends on the number of
//! tokens that enter, or on the number of sampled sequences. The work of attention is a polynomial
//! of the tokens of each chunk and of the decodes. So it suffices to count steps by these numbers
//! and to sum a few products. These tasks are priced when the day is over. Where attention
//! saturates, or its bytes are limited by its time, its work is no polynomial: it is counted with
//! each series of steps.

use crate::clock::SimTime;
use crate::serving::engine::observer::{EngineObserver, ObservedSteps};
use crate::serving::metrics::polynomial_sums::PolynomialSums;
use crate::serving::prices::batch::{Batch, PrefillChunk};
use crate::serving::prices::task_prices::{
    BatchDependence, entering_rows, only_device, rows_step, sampled_rows, saturates, task_kinds, task_price,
};
use crate::step::batch_run::{sampling_device, sampling_time};
use hwprofiles::{DeviceId, MissingRate, Provenance, Seconds};
use planner::{Action, CostModel, Lane, MicroBatch, PhasePrograms, Program, Task, TaskCost};
use scenarios::Operator;

/// The resources used of one machine, or of several equal machines together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResourceUse {
    /// FLOP.
    pub flop: u128,
    /// Bytes through each memory that has a bandwidth of its own, by number, including transfers.
    pub memories: Vec<u128>,
    /// Bytes over each link, by number.
    pub links: Vec<u128>,
    /// How long each device was busy, by number: the sum of the times that its tasks take alone.
    pub busy: Vec<Seconds>,
}

impl ResourceUse {
    /// Adds the use of another machine of the same kind.
    pub fn join(&mut self, other: &Self) {
        let add = |ours: &mut Vec<u128>, theirs: &[u128]| {
            ours.resize(ours.len().max(theirs.len()), 0);
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
        };
        self.flop += other.flop;
        add(&mut self.memories, &other.memories);
        add(&mut self.links, &other.links);
        self.busy.resize(self.busy.len().max(other.busy.len()), Seconds::ZERO);
        self.busy.iter_mut().zip(&other.busy).for_each(|(ours, theirs)| *ours += *theirs);
    }
}

/// Observes one engine that runs a plan.
#[derive(Debug, Clone)]
pub struct ResourceMeter<'a> {
    cost_model: CostModel<'a>,
    prefill: PhaseMeter<'a>,
    decode: PhaseMeter<'a>,
    /// See [`PhasePrograms::micro_batch`].
    micro_batch: Option<u64>,
    /// The first rate that was missing.
    missing: Option<MissingRate>,
}

/// The steps of one phase's program.
#[derive(Debug, Clone)]
struct PhaseMeter<'a> {
    program: &'a Program,
    /// The different tasks, with the count of each.
    kinds: Vec<(Task, f64)>,
    /// Those whose work is counted with each series of steps: see [`is_counted`].
    counted_kinds: Vec<(Task, f64)>,
    /// Those whose time is counted with each series of steps: attention, if several devices
    /// compute.
    timed_kinds: Vec<(Task, f64)>,
    /// The device that computes everything, if there is one.
    only_device: Option<DeviceId>,
    /// The number of steps by tokens that entered, and by sequences that were sampled.
    tokens: Vec<u64>,
    sampled: Vec<u64>,
    /// New tokens of each chunk, and the tokens before them.
    chunks: PolynomialSums,
    /// Decoding sequences, and the mean of the tokens before each.
    decodes: PolynomialSums,
    /// Tokens before all chunks and decodes together.
    past: PolynomialSums,
    /// The time of steps without the host's part.
    time: SimTime,
    /// How long each device computed attention, if several compute.
    attention_time: Vec<Seconds>,
    /// The work of tasks that is no polynomial.
    counted: Sums,
}

impl<'a> PhaseMeter<'a> {
    fn new(cost_model: &CostModel<'_>, program: &'a Program) -> Self {
        let (kinds, only_device) = (task_kinds(program), only_device(program));
        let among = |wanted: &dyn Fn(&Task) -> bool| {
            kinds.iter().filter(|(task, _)| wanted(task)).cloned().collect::<Vec<_>>()
        };
        let is_timed = |task: &Task| {
            let dependence = BatchDependence::from_task(task, cost_model.model);
            only_device.is_none()
                && matches!(dependence, BatchDependence::Attention | BatchDependence::NewAndPastTokens)
        };
        Self {
            program,
            counted_kinds: among(&|task| is_counted(task, cost_model)),
            timed_kinds: among(&is_timed),
            kinds,
            only_device,
            tokens: Vec::new(),
            sampled: Vec::new(),
            chunks: PolynomialSums::default(),
            decodes: PolynomialSums::default(),
            past: PolynomialSums::default(),
            time: SimTime::ZERO,
            attention_time: vec![Seconds::ZERO; cost_model.machine.devices.len()],
            counted: Sums::new(cost_model),
        }
    }

    fn add(&mut self, cost_model: &CostModel<'_>, steps: &ObservedSteps<'_>) -> Result<(), MissingRate> {
        let (batch, count) = (&steps.batch, steps.count);
        let count_steps = |counts: &mut Vec<u64>, number: u64| {
            let number = number as usize;
            if number >= counts.len() {
                counts.resize(number + 1, 0);
            }
            counts[number] += count;
        };
        count_steps(&mut self.tokens, entering_rows(cost_model.model, batch));
        count_steps(&mut self.sampled, sampled_rows(cost_model.model, batch));
        let mut past = 0;
        for chunk in batch.chunks {
            self.chunks.add(chunk.new, chunk.past, 0, count);
            past += chunk.past;
        }
        if let Some(mean) = (batch.decode_tokens - batch.decodes).checked_div(batch.decodes) {
            self.decodes.add(batch.decodes, mean, 1, count);
            past += batch.decode_tokens - batch.decodes;
        }
        self.past.add(1, past, batch.decodes, count);
        self.time += (steps.end - steps.begin).saturating_sub(steps.host);
        self.add_attention(cost_model, batch, count)?;
        for (task, kind_count) in &self.counted_kinds {
            let [first, last] = [batch, &last_batch(batch, count)].map(|b| task_price(cost_model, task, b));
            self.counted.add_series(&first?, &last?, i128::from(count), *kind_count as i128);
        }
        Ok(())
    }

    /// Adds a step that is computed in parts of at most `most` tokens. Its time is one.
    fn add_parts(
        &mut self,
        cost_model: &CostModel<'_>,
        steps: &ObservedSteps<'_>,
        most: u64,
    ) -> Result<(), MissingRate> {
        let mut part = ObservedSteps { ..*steps };
        for batch in steps.batch.parts(most) {
            self.add(cost_model, &ObservedSteps { batch: batch.as_batch(), ..part })?;
            (part.begin, part.host) = (part.end, SimTime::ZERO);
        }
        Ok(())
    }

    /// Adds the time of attention, if several devices compute. Between the first and the last of
    /// several steps it is taken for a straight line, like the prices of decode steps.
    fn add_attention(
        &mut self,
        cost_model: &CostModel<'_>,
        batch: &Batch<'_>,
        steps: u64,
    ) -> Result<(), MissingRate> {
        let last = last_batch(batch, steps);
        for (task, kind_count) in &self.timed_kinds {
            let Lane::Device(device) = task.lane else { continue };
            let ends =
                task_price(cost_model, task, batch)?.alone + task_price(cost_model, task, &last)?.alone;
            self.attention_time[device.0] += ends * (0.5 * kind_count * steps as f64);
        }
        Ok(())
    }

    /// Adds the resources of its steps.
    fn total(&self, cost_model: &CostModel<'_>, sums: &mut Sums) -> Result<(), MissingRate> {
        sums.join(&self.counted);
        for (task, count) in self.kinds.iter().filter(|(task, _)| !is_counted(task, cost_model)) {
            let count = *count as i128;
            let mut add = |batch: Batch<'_>, steps: i128| -> Result<(), MissingRate> {
                sums.add(&task_price(cost_model, task, &batch)?, steps * count);
                Ok(())
            };
            match BatchDependence::from_task(task, cost_model.model) {
                BatchDependence::Attention => {
                    self.chunks.total(|new, past, steps| add(chunk(&[PrefillChunk { new, past }]), steps))?;
                    self.decodes.total(|decodes, past, steps| {
                        let decode_tokens = decodes * (past + 1);
                        add(Batch { chunks: &[], decodes, decode_tokens, sampled: decodes }, steps)
                    })?;
                }
                BatchDependence::PastTokens => {
                    self.past.total(|_, past, steps| add(chunk(&[PrefillChunk { new: 1, past }]), steps))?;
                }
                BatchDependence::NewAndPastTokens => {}
                dependence @ (BatchDependence::SampledSequences | BatchDependence::NewTokens) => {
                    let counts = match dependence {
                        BatchDependence::SampledSequences => &self.sampled,
                        _ => &self.tokens,
                    };
                    let add = |n, steps| add(rows(&[one_chunk(n)]), steps);
                    by_number(counts, rises_linearly(task, cost_model), add)?;
                }
            }
        }
        self.add_busy_times(cost_model, &mut sums.busy)
    }

    /// Adds the times that devices were busy.
    fn add_busy_times(&self, cost_model: &CostModel<'_>, busy: &mut [Seconds]) -> Result<(), MissingRate> {
        if let Some(device) = self.only_device {
            busy[device.0] += self.time.to_seconds();
            return Ok(());
        }
        busy.iter_mut().zip(&self.attention_time).for_each(|(busy, time)| *busy += *time);
        for (task, count) in &self.kinds {
            let counts = match BatchDependence::from_task(task, cost_model.model) {
                BatchDependence::SampledSequences => &self.sampled,
                BatchDependence::NewTokens => &self.tokens,
                BatchDependence::Attention
                | BatchDependence::NewAndPastTokens
                | BatchDependence::PastTokens => continue,
            };
            let Lane::Device(device) = task.lane else { continue };
            for (n, steps) in numbers(counts) {
                busy[device.0] +=
                    task_price(cost_model, task, &rows(&[one_chunk(n)]))?.alone * (count * steps as f64);
            }
        }
        if let Some(device) = sampling_device(self.program) {
            for (n, steps) in numbers(&self.sampled) {
                busy[device.0] += sampling_time(cost_model, self.program, &rows_step(n)) * steps as f64;
            }
        }
        Ok(())
    }
}

/// The batch of the last of `steps` steps, the first of which has `batch`.
fn last_batch<'b>(batch: &Batch<'b>, steps: u64) -> Batch<'b> {
    Batch { decode_tokens: batch.decode_tokens + (steps - 1) * batch.decodes, ..*batch }
}

/// Whether the work of `task` is no polynomial of the tokens of a batch.
fn is_counted(task: &Task, cost_model: &CostModel<'_>) -> bool {
    match BatchDependence::from_task(task, cost_model.model) {
        BatchDependence::Attention => {
            saturates(cost_model.model.shape_or_ends(task.kind)) || is_limited(task, cost_model)
        }
        BatchDependence::NewAndPastTokens => true,
        _ => false,
    }
}

/// Whether the bytes of `task` are limited by its time in some batch. Where the time is measured
/// and the bandwidth is assumed, a task moves no more bytes than that bandwidth allows in that time
/// (see [`CostModel::task_cost`]). Such bytes rise like the time, which is no polynomial.
fn is_limited(task: &Task, cost_model: &CostModel<'_>) -> bool {
    let Lane::Device(device) = task.lane else { return false };
    let memory = cost_model.machine.device(device).memory;
    let bandwidth = &cost_model.machine.memory(memory).bandwidth;
    if matches!(bandwidth.source, Provenance::Measured { .. }) {
        return false;
    }
    let fills_its_time = |price: TaskCost| {
        let most = bandwidth.value.get() * (price.alone - price.overhead).get();
        let moved = price.loads.into_iter().flatten().filter(|load| load.memory == memory);
        price.basis.is_measured() && moved.map(|load| load.bytes.as_f64()).sum::<f64>() >= 0.999 * most
    };
    let decoding = |past: u64| Batch { chunks: &[], decodes: 8, decode_tokens: 8 * past, sampled: 8 };
    let prompts = PROBED_TOKENS.map(one_chunk).map(|chunk| [chunk]);
    let batches = prompts.iter().map(rows).chain(PROBED_TOKENS.map(decoding));
    batches.filter_map(|batch| task_price(cost_model, task, &batch).ok()).any(fills_its_time)
}

/// The lengths of prompts and of contexts at which [`is_limited`] looks.
const PROBED_TOKENS: [u64; 5] = [1, 8, 64, 512, 4096];

/// A batch in which each token of one chunk is sampled.
fn rows(chunk: &[PrefillChunk; 1]) -> Batch<'_> {
    Batch { chunks: chunk, decodes: 0, decode_tokens: 0, sampled: chunk[0].new }
}

fn one_chunk(new: u64) -> PrefillChunk {
    PrefillChunk { new, past: 0 }
}

fn chunk(chunks: &[PrefillChunk]) -> Batch<'_> {
    Batch { chunks, decodes: 0, decode_tokens: 0, sampled: 0 }
}

/// The numbers above zero that occurred, and how often.
fn numbers(counts: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    (0..).zip(counts.iter().copied()).skip(1).filter(|&(_, count)| count > 0)
}

/// Whether the work of `task` rises linearly with the number of its rows. More tokens touch more
/// experts, and micro-batches divide the number.
fn rises_linearly(task: &Task, cost_model: &CostModel<'_>) -> bool {
    let touches_experts = matches!(task.action, Action::Compute { operator: Operator::Experts, .. });
    !touches_experts && task.micro_batch == MicroBatch::WHOLE && !is_limited(task, cost_model)
}

/// Adds a task for each number that occurred, or for a few numbers with the same sum.
fn by_number(
    counts: &[u64],
    is_linear: bool,
    mut add: impl FnMut(u64, i128) -> Result<(), MissingRate>,
) -> Result<(), MissingRate> {
    if !is_linear {
        return numbers(counts).try_for_each(|(n, steps)| add(n, i128::from(steps)));
    }
    let mut sums = PolynomialSums::default();
    numbers(counts).for_each(|(n, steps)| sums.add(n, 0, 0, steps));
    sums.total(|n, _, steps| add(n, steps))
}

/// A resource use while it is added up: differences may be negative.
#[derive(Debug, Clone)]
struct Sums {
    flop: i128,
    memories: Vec<i128>,
    links: Vec<i128>,
    busy: Vec<Seconds>,
}

impl Sums {
    fn new(cost_model: &CostModel<'_>) -> Self {
        let machine = cost_model.machine;
        Self {
            flop: 0,
            memories: vec![0; machine.memories.len()],
            links: vec![0; machine.links.len()],
            busy: vec![Seconds::ZERO; machine.devices.len()],
        }
    }

    /// Adds `steps` steps with `each` such tasks, whose work rises from the `first` to the `last`
    /// along a straight line.
    fn add_series(&mut self, first: &TaskCost, last: &TaskCost, steps: i128, each: i128) {
        let mut both = Self {
            flop: 0,
            memories: vec![0; self.memories.len()],
            links: vec![0; self.links.len()],
            busy: Vec::new(),
        };
        both.add(first, 1);
        both.add(last, 1);
        let mean = |sum: i128| sum * steps / 2 * each;
        self.flop += mean(both.flop);
        self.memories.iter_mut().zip(both.memories).for_each(|(ours, sum)| *ours += mean(sum));
        self.links.iter_mut().zip(both.links).for_each(|(ours, sum)| *ours += mean(sum));
    }

    fn join(&mut self, other: &Self) {
        self.flop += other.flop;
        self.memories.iter_mut().zip(&other.memories).for_each(|(ours, theirs)| *ours += theirs);
        self.links.iter_mut().zip(&other.links).for_each(|(ours, theirs)| *ours += theirs);
    }

    fn add(&mut self, price: &TaskCost, steps: i128) {
        self.flop += price.flop.get() as i128 * steps;
        for load in price.loads.into_iter().flatten() {
            self.memories[load.memory.0] += i128::from(load.bytes.get()) * steps;
        }
        if let Some((link, bytes)) = price.carried {
            self.links[link.0] += i128::from(bytes.get()) * steps;
        }
    }
}

impl<'a> ResourceMeter<'a> {
    /// The meter of an engine that runs `programs`.
    pub fn new(cost_model: CostModel<'a>, programs: &'a PhasePrograms) -> Self {
        let phase = |program| PhaseMeter::new(&cost_model, program);
        let (prefill, decode) = (phase(&programs.prefill), phase(&programs.decode));
        Self { cost_model, prefill, decode, micro_batch: programs.micro_batch, missing: None }
    }

    /// The use of all observed steps.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn resource_use(&self) -> Result<ResourceUse, MissingRate> {
        if let Some(missing) = &self.missing {
            return Err(missing.clone());
        }
        let mut sums = Sums::new(&self.cost_model);
        for phase in [&self.prefill, &self.decode] {
            phase.total(&self.cost_model, &mut sums)?;
        }
        // A sum of work is not negative. Only the bytes of striped memories, rounded task by task,
        // may be one off.
        let whole = |sum: i128| sum.max(0) as u128;
        Ok(ResourceUse {
            flop: whole(sums.flop),
            memories: sums.memories.into_iter().map(whole).collect(),
            links: sums.links.into_iter().map(whole).collect(),
            busy: sums.busy,
        })
    }
}

impl EngineObserver for ResourceMeter<'_> {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        let divided = self.micro_batch.filter(|most| steps.batch.tokens() > *most);
        let added = match divided {
            _ if steps.batch.chunks.is_empty() => self.decode.add(&self.cost_model, steps),
            Some(most) => self.prefill.add_parts(&self.cost_model, steps, most),
            None => self.prefill.add(&self.cost_model, steps),
        };
        if let Err(missing) = added {
            self.missing.get_or_insert(missing);
        }
    }
}
