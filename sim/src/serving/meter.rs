//! What steps take of the machine: FLOP, bytes through memories and links, time of devices.
//!
//! Nothing is priced while steps go by. What a task does in a step depends on how many tokens enter, on how many sequences are
//! sampled, or, of attention, on each chunk and on the decodes, as a polynomial of their tokens. So it is enough to
//! count steps by their numbers and to sum a few products; the tasks are priced when the day is over.

use super::batch::{Batch, Piece};
use super::moments::Moments;
use super::picos::Picos;
use super::plan_prices::{Follows, alone, kinds, price, sampled};
use super::watch::{Steps, Watch};
use crate::run::{sampler, sampling_time};
use hwprofiles::{DeviceId, Missing, Seconds};
use planner::{Action, Lane, MicroBatch, Price, Pricing, Program, Programs, Task};
use scenarios::{Operator, Phase};

/// What was taken of one machine, or of several alike together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effort {
    /// FLOP.
    pub flop: u128,
    /// Bytes through each memory whose bandwidth it is, by number; those of transfers among them.
    pub memories: Vec<u128>,
    /// Bytes over each link, by number.
    pub links: Vec<u128>,
    /// How long each device was at work, by number: the sum of what its tasks take alone.
    pub busy: Vec<Seconds>,
}

impl Effort {
    /// Joins that of another machine of the same kind.
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

/// Listens to one engine that runs a plan.
#[derive(Debug, Clone)]
pub struct Meter<'a> {
    pricing: Pricing<'a>,
    phases: [Reading<'a>; 2],
    /// The first rate that was missing.
    missing: Option<Missing>,
}

/// The steps of one phase's program.
#[derive(Debug, Clone)]
struct Reading<'a> {
    program: &'a Program,
    kinds: Vec<(Task, f64)>,
    /// The device that computes everything, where one does.
    alone: Option<DeviceId>,
    /// How many steps so many tokens entered in, and so many sequences were sampled in.
    tokens: Vec<u64>,
    sampled: Vec<u64>,
    /// New tokens of each chunk, and those before them.
    pieces: Moments,
    /// Sequences that decode, and the tokens before each in the mean.
    decodes: Moments,
    /// Tokens before all chunks and decodes together.
    past: Moments,
    /// In which steps ran, the host's part left out.
    time: Picos,
    /// How long each device attended, where several compute.
    attended: Vec<Seconds>,
}

impl<'a> Reading<'a> {
    fn of(pricing: &Pricing<'_>, program: &'a Program) -> Self {
        Self {
            program,
            kinds: kinds(program),
            alone: alone(program),
            tokens: Vec::new(),
            sampled: Vec::new(),
            pieces: Moments::default(),
            decodes: Moments::default(),
            past: Moments::default(),
            time: Picos::ZERO,
            attended: vec![Seconds::ZERO; pricing.machine.devices.len()],
        }
    }

    fn add(&mut self, pricing: &Pricing<'_>, steps: &Steps<'_>) -> Result<(), Missing> {
        let (batch, count) = (&steps.batch, steps.count);
        let note = |counts: &mut Vec<u64>, number: u64| {
            let number = number as usize;
            counts.resize(counts.len().max(number + 1), 0);
            counts[number] += count;
        };
        note(&mut self.tokens, batch.tokens());
        note(&mut self.sampled, batch.sampled);
        let mut past = 0;
        for piece in batch.pieces {
            self.pieces.add(piece.new, piece.past, 0, count);
            past += piece.past;
        }
        if let Some(mean) = (batch.decode_tokens - batch.decodes).checked_div(batch.decodes) {
            self.decodes.add(batch.decodes, mean, 1, count);
            past += batch.decode_tokens - batch.decodes;
        }
        self.past.add(1, past, batch.decodes, count);
        self.time += (steps.end - steps.begin).saturating_sub(steps.host);
        if self.alone.is_none() {
            self.attend(pricing, batch, count)?;
        }
        Ok(())
    }

    /// Between the first of several steps and the last, what attention takes is taken for a straight line, as its prices are.
    fn attend(&mut self, pricing: &Pricing<'_>, batch: &Batch<'_>, count: u64) -> Result<(), Missing> {
        let last = Batch { decode_tokens: batch.decode_tokens + (count - 1) * batch.decodes, ..*batch };
        for (task, alike) in self.kinds.iter().filter(|(task, _)| Follows::of(task) == Follows::Attended) {
            let Lane::Device(device) = task.lane else { continue };
            let ends = price(pricing, task, batch)?.alone + price(pricing, task, &last)?.alone;
            self.attended[device.0] += ends * (0.5 * alike * count as f64);
        }
        Ok(())
    }

    /// Adds what its steps took.
    fn total(&self, pricing: &Pricing<'_>, sums: &mut Sums) -> Result<(), Missing> {
        for (task, alike) in &self.kinds {
            let alike = *alike as i128;
            let mut add = |batch: Batch<'_>, steps: i128| -> Result<(), Missing> {
                sums.add(&price(pricing, task, &batch)?, steps * alike);
                Ok(())
            };
            match Follows::of(task) {
                Follows::Attended => {
                    let chunk = |new, past, steps| add(chunk(&[Piece { new, past }]), steps);
                    self.pieces.total(chunk)?;
                    self.decodes.total(|decodes, past, steps| {
                        add(Batch { decode_tokens: decodes * (past + 1), ..rows(decodes) }, steps)
                    })?;
                }
                Follows::Past => {
                    self.past.total(|_, past, steps| add(chunk(&[Piece { new: 1, past }]), steps))?;
                }
                Follows::Sampled => by_number(task, &self.sampled, |n, steps| add(rows(n), steps))?,
                Follows::Tokens => by_number(task, &self.tokens, |n, steps| add(rows(n), steps))?,
            }
        }
        self.work(pricing, &mut sums.busy)
    }

    /// Adds how long devices worked.
    fn work(&self, pricing: &Pricing<'_>, busy: &mut [Seconds]) -> Result<(), Missing> {
        if let Some(device) = self.alone {
            busy[device.0] += self.time.to_seconds();
            return Ok(());
        }
        busy.iter_mut().zip(&self.attended).for_each(|(busy, attended)| *busy += *attended);
        for (task, alike) in &self.kinds {
            let counts = match Follows::of(task) {
                Follows::Sampled => &self.sampled,
                Follows::Tokens => &self.tokens,
                Follows::Attended | Follows::Past => continue,
            };
            let Lane::Device(device) = task.lane else { continue };
            for (n, steps) in numbers(counts) {
                busy[device.0] += price(pricing, task, &rows(n))?.alone * (alike * steps as f64);
            }
        }
        if let Some(device) = sampler(self.program) {
            for (n, steps) in numbers(&self.sampled) {
                busy[device.0] += sampling_time(pricing, self.program, &sampled(&rows(n))) * steps as f64;
            }
        }
        Ok(())
    }
}

/// So many tokens, of as many sequences.
fn rows(count: u64) -> Batch<'static> {
    Batch { pieces: &[], decodes: count, decode_tokens: count, sampled: count }
}

fn chunk(pieces: &[Piece]) -> Batch<'_> {
    Batch { pieces, decodes: 0, decode_tokens: 0, sampled: 0 }
}

/// The numbers that occurred, and how often; nobody asks for nothing.
fn numbers(counts: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    (0..).zip(counts.iter().copied()).skip(1).filter(|&(_, count)| count > 0)
}

/// What a task does rises straight with the number but for experts, which more tokens touch more of, and for parts of batches.
fn by_number(
    task: &Task,
    counts: &[u64],
    mut add: impl FnMut(u64, i128) -> Result<(), Missing>,
) -> Result<(), Missing> {
    let experts = matches!(task.action, Action::Compute { operator: Operator::Experts, .. });
    if experts || task.micro_batch != MicroBatch::WHOLE {
        return numbers(counts).try_for_each(|(n, steps)| add(n, i128::from(steps)));
    }
    let mut moments = Moments::default();
    numbers(counts).for_each(|(n, steps)| moments.add(n, 0, 0, steps));
    moments.total(|n, _, steps| add(n, steps))
}

/// An effort while it is added up: differences may be negative.
struct Sums {
    flop: i128,
    memories: Vec<i128>,
    links: Vec<i128>,
    busy: Vec<Seconds>,
}

impl Sums {
    fn add(&mut self, price: &Price, steps: i128) {
        self.flop += price.flop.get() as i128 * steps;
        for load in price.loads.into_iter().flatten() {
            self.memories[load.memory.0] += i128::from(load.bytes.get()) * steps;
        }
        if let Some((link, bytes)) = price.carried {
            self.links[link.0] += i128::from(bytes.get()) * steps;
        }
    }
}

impl<'a> Meter<'a> {
    /// Of an engine that runs `programs`.
    pub fn new(pricing: Pricing<'a>, programs: &'a Programs) -> Self {
        let phases = [&programs.prefill, &programs.decode].map(|program| Reading::of(&pricing, program));
        Self { pricing, phases, missing: None }
    }

    /// All of it.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub fn effort(&self) -> Result<Effort, Missing> {
        if let Some(missing) = &self.missing {
            return Err(missing.clone());
        }
        let machine = self.pricing.machine;
        let mut sums = Sums {
            flop: 0,
            memories: vec![0; machine.memories.len()],
            links: vec![0; machine.links.len()],
            busy: vec![Seconds::ZERO; machine.devices.len()],
        };
        for phase in &self.phases {
            phase.total(&self.pricing, &mut sums)?;
        }
        // A sum of what was done is not negative; bytes of striped memories, rounded task by task, may be one off.
        let whole = |sum: i128| sum.max(0) as u128;
        Ok(Effort {
            flop: whole(sums.flop),
            memories: sums.memories.into_iter().map(whole).collect(),
            links: sums.links.into_iter().map(whole).collect(),
            busy: sums.busy,
        })
    }
}

impl Watch for Meter<'_> {
    fn steps(&mut self, steps: &Steps<'_>) {
        let phase = if steps.batch.pieces.is_empty() { Phase::Decode } else { Phase::Prefill };
        if let Err(missing) = self.phases[phase as usize].add(&self.pricing, steps) {
            self.missing.get_or_insert(missing);
        }
    }
}
