//! Step prices of a plan: the costs of its tasks for the tokens of many sequences.

use crate::clock::{SimTime, Tick};
use crate::serving::prices::attention_times::AttentionTimes;
use crate::serving::prices::batch::{Batch, OwnedBatch, PrefillChunk, StepPrices};
use crate::serving::prices::kinks::ContextKinks;
use crate::serving::prices::step_line::StepLine;
use crate::serving::prices::task_prices::{
    AttentionTime, BatchDependence, attention_cost, attention_steps, attention_time, dependent_price,
    entering_rows, mixed_time, only_device, rows_step, sampled_rows, task_kinds, task_price,
};
use crate::step::batch_run::sampling_time;
use crate::step::simulator::{Simulator, step_seconds};
use hwprofiles::{DeviceId, MissingRate, Seconds};
use planner::{Action, CostModel, Lane, PhasePrograms, Program, StepOverlap, Task};
use rustc_hash::FxHashMap;
use scenarios::{Operator, Phase};

/// Steps are priced at this many token counts per octave, with straight lines between them.
const POINTS_PER_OCTAVE: u64 = 16;

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
    /// Contexts at which the time of attention bends.
    kinks: ContextKinks,
    /// By the number of decodes.
    lines: Vec<DecodeLines>,
    simulated: FxHashMap<OwnedBatch, SimTime>,
}

/// The time of all tasks of one operator in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorTime {
    /// The operator; `None` for sampling.
    pub operator: Option<Operator>,
    /// Its time, as if it ran alone.
    pub time: Seconds,
    /// The part of it that moves no bytes through memory: launches, and sums over ranks.
    pub overhead: Seconds,
}

/// The steps of one number of decodes that one line covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineKey {
    /// The number of the stretch of mean contexts: a quarter of an octave each.
    stretch: u32,
    /// The mean context at the last kink before.
    kink: u64,
}

/// The lines of one number of decodes.
#[derive(Debug, Clone, Default)]
struct DecodeLines {
    lines: Vec<(LineKey, StepLine)>,
    /// The index of the line that was asked for last: contexts change slowly.
    last: usize,
}

impl DecodeLines {
    /// A line that holds for `tokens` and begins with fewer. The tokens that it begins with may
    /// belong to the stretch before: see [`PlanPrices::line`].
    fn around(&mut self, tokens: u64) -> Option<StepLine> {
        let is_around = |(_, line): &&(LineKey, StepLine)| line.from < tokens && tokens < line.until;
        if let Some((_, line)) = self.lines.get(self.last).filter(is_around) {
            return Some(*line);
        }
        self.last = self.lines.iter().position(|line| is_around(&line))?;
        Some(self.lines[self.last].1)
    }

    /// The line of `key`, if it holds for `tokens`.
    fn get(&self, key: LineKey, tokens: u64) -> Option<StepLine> {
        let holds =
            |(own, line): &&(LineKey, StepLine)| *own == key && line.from <= tokens && tokens < line.until;
        self.lines.iter().find(holds).map(|(_, line)| *line)
    }

    /// Adds the line of `key`, in place of an earlier one.
    fn insert(&mut self, key: LineKey, line: StepLine) {
        match self.lines.iter_mut().find(|(own, _)| *own == key) {
            Some((_, known)) => *known = line,
            None => self.lines.push((key, line)),
        }
    }
}

/// Prices of a program whose tasks run one after the other on one device.
#[derive(Debug)]
struct SerialPrices {
    device: DeviceId,
    /// The different tasks, with the count of each, by [`BatchDependence`].
    tasks: [Vec<(Task, f64)>; BatchDependence::COUNT],
    attention: Vec<AttentionTask>,
    /// Seconds of the tasks that depend on the tokens alone, by tokens.
    by_tokens: FxHashMap<u64, f64>,
    /// Seconds of the tasks that depend on the sampled sequences alone, by sequences.
    by_sampled: FxHashMap<u64, f64>,
}

/// A task of attention.
#[derive(Debug)]
struct AttentionTask {
    task: Task,
    /// How many there are.
    count: f64,
    /// Whether chunks and decodes may be computed in one call.
    is_mixed: bool,
    /// Its times by the chunk or the decodes that it attends for.
    times: AttentionTimes,
}

impl SerialPrices {
    fn new(cost_model: &CostModel<'_>, program: &Program) -> Option<Self> {
        let device = only_device(program)?;
        let mut tasks: [Vec<_>; BatchDependence::COUNT] = Default::default();
        for (task, count) in task_kinds(program) {
            tasks[BatchDependence::from_task(&task, cost_model.model) as usize].push((task, count));
        }
        let attention = std::mem::take(&mut tasks[BatchDependence::Attention as usize]);
        let attention = attention.into_iter().map(|(task, count)| {
            let (is_mixed, times) = (cost_model.knows_mixed_attention(&task), AttentionTimes::default());
            AttentionTask { task, count, is_mixed, times }
        });
        let attention = attention.collect();
        let (by_tokens, by_sampled) = Default::default();
        Some(Self { device, tasks, attention, by_tokens, by_sampled })
    }

    fn seconds(
        &mut self,
        cost_model: &CostModel<'_>,
        program: &Program,
        batch: &Batch<'_>,
    ) -> Result<f64, MissingRate> {
        let tokens = entering_rows(cost_model.model, batch);
        let sampled = sampled_rows(cost_model.model, batch);
        let (low, high) = priced_neighbours(tokens);
        let (first, last) = (self.of_tokens(cost_model, low)?, self.of_tokens(cost_model, high)?);
        let share = if low == high { 0.0 } else { (tokens - low) as f64 / (high - low) as f64 };
        let once = match self.by_sampled.get(&sampled) {
            Some(&known) => known,
            None => {
                let sampling = sampling_time(cost_model, program, &rows_step(sampled)).get();
                let sum = self.sum(cost_model, BatchDependence::SampledSequences, batch)? + sampling;
                self.by_sampled.insert(sampled, sum);
                sum
            }
        };
        let mut each = self.attention(cost_model, batch)?;
        each += self.sum(cost_model, BatchDependence::NewAndPastTokens, batch)?;
        Ok(first + (last - first) * share + once + each)
    }

    /// Seconds of attention.
    fn attention(&mut self, cost_model: &CostModel<'_>, batch: &Batch<'_>) -> Result<f64, MissingRate> {
        let mut sum = 0.0;
        let steps = attention_steps(cost_model.model, batch);
        for AttentionTask { task, count, is_mixed, times } in &mut self.attention {
            let together = if *is_mixed { mixed_time(cost_model, task, batch) } else { None };
            let time = attention_time(&steps, together, |step| {
                times.get(step, || Ok(AttentionTime::new(&attention_cost(cost_model, task, step)?)))
            });
            sum += *count * time?.alone.get();
        }
        Ok(sum)
    }

    /// Seconds of the tasks that depend on the tokens alone, for `tokens` tokens.
    fn of_tokens(&mut self, cost_model: &CostModel<'_>, tokens: u64) -> Result<f64, MissingRate> {
        if let Some(&known) = self.by_tokens.get(&tokens) {
            return Ok(known);
        }
        let chunk = [PrefillChunk { new: tokens, past: 0 }];
        let batch = Batch { chunks: &chunk, decodes: 0, decode_tokens: 0, sampled: tokens };
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
        for (task, count) in &self.tasks[dependence as usize] {
            sum += count * dependent_price(cost_model, task, dependence, batch)?.alone.get();
        }
        Ok(sum)
    }
}

impl<'a> PlanPrices<'a> {
    /// The prices of `programs`.
    pub fn new(cost_model: CostModel<'a>, programs: &'a PhasePrograms) -> Self {
        let issues = cost_model.machine.devices.iter().any(|device| device.issue.is_some());
        let serial = |program| if issues { None } else { SerialPrices::new(&cost_model, program) };
        Self {
            cost_model,
            programs,
            simulator: Simulator::new(cost_model),
            serial_prefill: serial(&programs.prefill),
            serial_decode: serial(&programs.decode),
            kinks: ContextKinks::new(cost_model.model),
            lines: Vec::new(),
            simulated: FxHashMap::default(),
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

    /// The most tokens of a part, where prompts enter and the step is computed in parts.
    fn part(&self, batch: &Batch<'_>) -> Option<u64> {
        let is_larger = |most: &u64| !batch.chunks.is_empty() && batch.tokens() > *most;
        self.programs.micro_batch.filter(is_larger)
    }

    /// Seconds of parts of a step, which follow each other through the GPUs where the engine
    /// overlaps steps.
    fn in_parts(&mut self, parts: &[OwnedBatch]) -> Result<f64, MissingRate> {
        let overlap = StepOverlap::new(&self.cost_model, &self.programs.prefill);
        let mut all = 0.0;
        let (mut followed, mut busy) = (0.0, vec![Seconds::ZERO; self.cost_model.machine.devices.len()]);
        for (index, part) in parts.iter().enumerate() {
            let seconds = self.seconds(Phase::Prefill, &part.as_batch())?;
            all += seconds;
            if overlap.is_some() && index + 1 < parts.len() {
                followed += seconds;
                for (sum, time) in busy.iter_mut().zip(self.undivided_device_times(&part.as_batch())?) {
                    *sum += time;
                }
            }
        }
        let Some(overlap) = overlap else { return Ok(all) };
        let lanes =
            busy.iter().enumerate().map(|(device, time)| (Lane::Device(DeviceId(device)), time.get()));
        Ok(all - overlap.saved(followed, &overlap.busy(lanes)))
    }

    /// How long a step of `batch` keeps each device busy, by device.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn device_times(&mut self, batch: &Batch<'_>) -> Result<Vec<Seconds>, MissingRate> {
        let Some(most) = self.part(batch) else { return self.undivided_device_times(batch) };
        let mut busy = vec![Seconds::ZERO; self.cost_model.machine.devices.len()];
        for part in batch.parts(most) {
            for (sum, time) in busy.iter_mut().zip(self.undivided_device_times(&part.as_batch())?) {
                *sum += time;
            }
        }
        Ok(busy)
    }

    fn undivided_device_times(&mut self, batch: &Batch<'_>) -> Result<Vec<Seconds>, MissingRate> {
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

    /// The time of each operator in a step of `batch`, each as if it ran alone, in the order of
    /// the program, and of sampling at last.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn by_operator(&self, batch: &Batch<'_>) -> Result<Vec<OperatorTime>, MissingRate> {
        let phase = if batch.chunks.is_empty() { Phase::Decode } else { Phase::Prefill };
        let program = self.programs.program(phase);
        let mut times: Vec<OperatorTime> = Vec::new();
        for task in &program.tasks {
            let Action::Compute { operator, .. } = task.action else { continue };
            let cost = task_price(&self.cost_model, task, batch)?;
            match times.iter_mut().find(|known| known.operator == Some(operator)) {
                Some(known) => {
                    known.time += cost.alone;
                    known.overhead += cost.overhead;
                }
                None => {
                    let (operator, time, overhead) = (Some(operator), cost.alone, cost.overhead);
                    times.push(OperatorTime { operator, time, overhead });
                }
            }
        }
        let sampled = rows_step(sampled_rows(self.cost_model.model, batch));
        let time = sampling_time(&self.cost_model, program, &sampled);
        times.push(OperatorTime { operator: None, time, overhead: Seconds::ZERO });
        Ok(times)
    }

    fn simulate(&mut self, phase: Phase, batch: &Batch<'_>) -> Result<f64, MissingRate> {
        let program = self.programs.program(phase);
        let cost_model = self.cost_model;
        let price = |task: &Task| task_price(&cost_model, task, batch);
        let outcome = self.simulator.step_priced_by(program, |_| false, price)?;
        let sampled = rows_step(sampled_rows(cost_model.model, batch));
        let sampling = sampling_time(&cost_model, program, &sampled);
        Ok((outcome.seconds() + sampling).get())
    }
}

impl StepPrices for PlanPrices<'_> {
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, MissingRate> {
        let divided = self.part(batch);
        if self.serial_prefill.is_some() {
            return Ok(sim_time(match divided {
                Some(most) => self.in_parts(&batch.parts(most))?,
                None => self.seconds(Phase::Prefill, batch)?,
            }));
        }
        let key = OwnedBatch::new(batch);
        if let Some(&known) = self.simulated.get(&key) {
            return Ok(known);
        }
        let time = sim_time(match divided {
            Some(most) => self.in_parts(&batch.parts(most))?,
            None => self.seconds(Phase::Prefill, batch)?,
        });
        if self.simulated.len() == REMEMBERED {
            self.simulated.clear();
        }
        self.simulated.insert(key, time);
        Ok(time)
    }

    /// A straight line over mean contexts of a quarter of an octave, or up to where attention
    /// bends.
    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, MissingRate> {
        let index = decodes as usize;
        if index >= self.lines.len() {
            self.lines.resize(index + 1, DecodeLines::default());
        }
        match self.lines[index].around(tokens) {
            Some(line) => Ok(line),
            None => self.line(decodes, tokens),
        }
    }
}

impl PlanPrices<'_> {
    /// The line of `decodes` sequences at `tokens`, which is priced once.
    fn line(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, MissingRate> {
        const STRETCHES: f64 = 4.0;
        let mean = tokens as f64 / decodes as f64;
        let stretch = (mean.log2() * STRETCHES).floor().max(0.0) as u32;
        let end = |stretch: u32| (2f64.powf(f64::from(stretch) / STRETCHES) * decodes as f64).floor() as u64;
        // Rounding down may have moved the tokens to the stretch before.
        let stretch = if tokens < end(stretch) { stretch - 1 } else { stretch };
        let kinks = self.kinks.around(tokens / decodes);
        let key = LineKey { stretch, kink: kinks.before };
        if let Some(line) = self.lines[decodes as usize].get(key, tokens) {
            return Ok(line);
        }
        let (from, until) = (end(stretch).min(tokens), end(stretch + 1).max(tokens + 1));
        let from = from.max(kinks.before * decodes);
        let (until, priced) = kinks.end(decodes, from, until);
        let mut at = |tokens: u64| {
            let batch = Batch { chunks: &[], decodes, decode_tokens: tokens, sampled: decodes };
            self.seconds(Phase::Decode, &batch)
        };
        let (low, high) = (at(from)?, at(priced)?);
        let line = StepLine::through(from, sim_time(low), priced, sim_time(high));
        let line = StepLine { until, ..line };
        self.lines[decodes as usize].insert(key, line);
        Ok(line)
    }
}

fn sim_time(seconds: f64) -> SimTime {
    SimTime::rounding_up(Seconds::new(seconds), Tick::Picosecond)
}

/// The token counts next to `tokens` that are priced: all up to 16, then [`POINTS_PER_OCTAVE`].
fn priced_neighbours(tokens: u64) -> (u64, u64) {
    if tokens <= POINTS_PER_OCTAVE {
        return (tokens, tokens);
    }
    let step = 1 << (tokens.ilog2() - POINTS_PER_OCTAVE.ilog2());
    let low = tokens - tokens % step;
    (low, if low == tokens { low } else { low + step })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::{DType, Library};
    use planner::Placement;
    use proptest::prelude::*;
    use scenarios::{Formats, Model};

    impl PlanPrices<'_> {
        fn forget_attention(&mut self) {
            for serial in [&mut self.serial_prefill, &mut self.serial_decode].into_iter().flatten() {
                serial.attention.iter_mut().for_each(|attention| attention.times.forget());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]
        #[test]
        fn prices_that_are_remembered_are_those_that_are_computed(
            decodes in 1u64..6, first in 1u64..2000,
            series in prop::collection::vec((0u64..40, 0u64..40, 1u64..30), 1..200),
        ) {
            let machine = Library::default().machine("h100-sxm").unwrap();
            let model = Model::preset("llama-3.1-8b").unwrap();
            let bf16 = DType::Bf16;
            let formats = Formats { weights: bf16.into(), kv: bf16, activations: bf16 };
            let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
            let gpu = machine.device_ids().find(|id| machine.device(*id).cores.is_empty()).unwrap();
            let placement = Placement::uniform(&model, gpu, machine.device(gpu).memory);
            let programs = PhasePrograms::lower(&machine, &model, &placement).unwrap();
            let mut prices = PlanPrices::new(cost_model, &programs);
            let mut plain = PlanPrices::new(cost_model, &programs);
            let mut tokens = first * decodes;
            for (up, down, new) in series {
                // Contexts go up and down, over the ends of stretches too.
                tokens = (tokens + up).saturating_sub(down).max(decodes);
                plain.forget_attention();
                plain.lines.resize(decodes as usize + 1, DecodeLines::default());
                prop_assert_eq!(prices.decode(decodes, tokens).unwrap(), plain.line(decodes, tokens).unwrap());
                let chunks = [PrefillChunk { new, past: 16 * (up % 3) }];
                let batch = Batch { chunks: &chunks, decodes, decode_tokens: tokens, sampled: decodes + 1 };
                plain.forget_attention();
                prop_assert_eq!(prices.step(&batch).unwrap(), plain.step(&batch).unwrap());
            }
        }
    }
}
