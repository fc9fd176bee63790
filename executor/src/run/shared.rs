//! What the lanes of a run share: sequences, the current pass, and records of the last one.

use crate::batch::pass::Pass;
use crate::batch::sampling::Sampler;
use crate::batch::sequence::SlotSequence;
use crate::run::engine::RunEngine;
use crate::store::locks::POISONED;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Instant;

/// Why a lock is free between two passes.
const NO_LANE_WORKS: &str = "no lane is at work between two passes, and none has panicked";

/// Start and end of a task, in nanoseconds since the run's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskInterval {
    pub start: u64,
    pub end: u64,
}

/// What a lane recorded of a pass.
#[derive(Debug, Default)]
pub(crate) struct LaneRecord {
    /// Times of its tasks, in the lane's order.
    pub tasks: Vec<TaskInterval>,
    /// When it had finished the pass, or was ready for the first.
    pub arrived: u64,
}

/// Which times a run wants besides those of its passes. On a GPU the time of a task costs the host
/// two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskTimes {
    /// No others.
    None,
    /// How long each device was busy in a pass.
    Busy,
    /// Those of each task.
    Each,
}

/// The state that the lanes of a run share.
pub(crate) struct SharedRun<'a> {
    pub engine: &'a RunEngine,
    /// By slot.
    pub sequences: RwLock<Vec<SlotSequence>>,
    /// The current pass, or the next one; `None` at the end.
    pass: Mutex<Option<Arc<Pass>>>,
    /// Tokens that the last pass sampled, by slot.
    sampled: Mutex<Vec<(usize, u32)>>,
    /// By lane: its record of the last pass.
    records: Vec<Mutex<LaneRecord>>,
    /// Which times of tasks are wanted.
    pub times: TaskTimes,
    origin: Instant,
    /// The error of a device that ended the run.
    failure: Mutex<Option<kernels::KernelError>>,
}

/// The state between two passes, while no lane is at work.
pub(crate) struct BetweenPasses<'m> {
    /// When the last lane had finished the last pass, or was ready for the first, in nanoseconds
    /// since the run's origin.
    pub now: u64,
    /// By lane: its record of the last pass; empty before the first.
    pub records: Vec<MutexGuard<'m, LaneRecord>>,
    /// By slot.
    pub sequences: &'m mut [SlotSequence],
    /// The tokens that the last pass appended, by slot.
    pub sampled: &'m [(usize, u32)],
}

impl<'a> SharedRun<'a> {
    /// A run of `sequences`, one for each slot. Its clock begins at `origin`.
    pub fn new(
        engine: &'a RunEngine,
        sequences: Vec<SlotSequence>,
        origin: Instant,
        times: TaskTimes,
    ) -> Self {
        Self {
            engine,
            sequences: RwLock::new(sequences),
            pass: Mutex::new(None),
            sampled: Mutex::new(Vec::new()),
            records: engine.lanes.iter().map(|_| Mutex::default()).collect(),
            times,
            origin,
            failure: Mutex::new(None),
        }
    }

    /// Asks `schedule` for the next pass, while no lane is at work and none holds a lock.
    pub fn advance(&self, schedule: &mut impl FnMut(&mut BetweenPasses<'_>) -> Option<Pass>) {
        let mut sampled = self.sampled.try_lock().expect(NO_LANE_WORKS);
        let mut sequences = self.sequences.try_write().expect(NO_LANE_WORKS);
        let records: Vec<_> =
            self.records.iter().map(|record| record.try_lock().expect(NO_LANE_WORKS)).collect();
        let now = records.iter().map(|record| record.arrived).max().unwrap_or(0);
        let mut state = BetweenPasses { now, records, sequences: &mut sequences, sampled: &sampled };
        let pass = schedule(&mut state);
        state.records.iter_mut().for_each(|record| record.tasks.clear());
        drop(state);
        sampled.clear();
        *self.pass.try_lock().expect(NO_LANE_WORKS) = pass.map(Arc::new);
    }

    /// The current pass; `None` behind the last one.
    pub fn pass(&self) -> Option<Arc<Pass>> {
        self.pass.lock().expect(POISONED).clone()
    }

    /// The record of lane number `lane`.
    pub fn record(&self, lane: usize) -> MutexGuard<'_, LaneRecord> {
        self.records[lane].lock().expect(POISONED)
    }

    /// Nanoseconds since the run's origin.
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Keeps the error of a device that ends the run. Of several errors the first is kept.
    pub fn keep_failure(&self, error: kernels::KernelError) {
        self.failure.lock().expect(POISONED).get_or_insert(error);
    }

    /// Takes the error that ended the run, if a device failed.
    pub fn take_failure(&self) -> Option<kernels::KernelError> {
        self.failure.lock().expect(POISONED).take()
    }

    /// Places `tokens`, which belong to the rows of logits in order, in the sampled sequences of
    /// `pass`. Sequences that have a verified token at that position already keep theirs.
    pub fn append(&self, pass: &Pass, tokens: impl Iterator<Item = u32>) {
        let mut sequences = self.sequences.write().expect(POISONED);
        let mut sampled = self.sampled.lock().expect(POISONED);
        let mut choice = TokenChoice { sequences: &mut sequences, sampled: &mut sampled, rejected: None };
        for (row, token) in pass.sampled().zip(tokens) {
            choice.place(row, |_| token);
        }
    }

    /// Chooses tokens from the logits in the host's memory, and appends them.
    ///
    /// # Errors
    /// A logit is NaN or infinite, or cannot be fetched.
    pub fn sample(&self, pass: &Pass) -> Result<(), kernels::KernelError> {
        let device = self.engine.setup.placement.head[0].device(pass.phase);
        let rows = pass.parts.iter().map(|part| part.ends.len());
        let mut sequences = self.sequences.write().expect(POISONED);
        let mut sampled = self.sampled.lock().expect(POISONED);
        let mut choice = TokenChoice { sequences: &mut sequences, sampled: &mut sampled, rejected: None };
        let (mut ends, mut finite) = (pass.sampled(), true);
        self.engine.store.logits(device, rows, self.engine.setup.model.vocab, |logits| {
            let row = ends.next().expect("a row for each");
            finite &= logits.iter().all(|logit| logit.is_finite());
            if finite {
                choice.place(row, |sampler| sampler.next(logits));
            }
        })?;
        if finite { Ok(()) } else { Err(kernels::KernelError::NotFinite) }
    }
}

/// The choice of the tokens of a pass, row by row.
struct TokenChoice<'m> {
    sequences: &'m mut [SlotSequence],
    sampled: &'m mut Vec<(usize, u32)>,
    /// The slot whose proposed token was rejected. Its later rows were computed with that token.
    rejected: Option<usize>,
}

impl TokenChoice<'_> {
    /// Chooses the token after the slot's first `reached` tokens with `choose`, if it is still
    /// open. After a rejected token nothing is chosen, so a sampler draws the same numbers as
    /// without a draft.
    fn place(&mut self, (slot, reached): (usize, usize), choose: impl FnOnce(&mut Sampler) -> u32) {
        let sequence = &mut self.sequences[slot];
        if self.rejected == Some(slot) || !sequence.is_open(reached) {
            return;
        }
        let token = choose(&mut sequence.sampler);
        if !sequence.choose(reached, token) {
            self.rejected = Some(slot);
        }
        self.sampled.push((slot, token));
    }
}
