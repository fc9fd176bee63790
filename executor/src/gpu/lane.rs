//! A lane of a GPU at work: tasks go into its stream between two events, or a whole pass goes at once.

use super::board::Board;
use super::inputs::Inputs;
use super::transfer;
use super::worker::Worker;
use crate::compute::read;
use crate::lane::{Interval, Job, Record, hop_of, is_idle};
use crate::pass::Pass;
use crate::run::Run;
use kernels::Span;
use kernels::cuda::calls::{self, Values};
use kernels::cuda::{Event, Queue};
use planner::{Action, Lane, MicroBatch, Task, TaskId};
use scenarios::{Buffer, Phase};
use std::sync::MutexGuard;

/// A lane's stream during a run.
pub(crate) struct Stream<'a> {
    at: Place<'a>,
    queue: MutexGuard<'a, Queue>,
    /// The current pass's beginning: on the GPU's clock, and in nanoseconds on the run's.
    zero: (Event, u64),
    /// When the last pass that was enqueued as a whole has ended.
    end: Event,
}

/// What a stream's work is for.
#[derive(Clone, Copy)]
struct Place<'a> {
    run: &'a Run<'a>,
    board: &'a Board,
    lane: Lane,
}

impl<'a> Stream<'a> {
    pub fn new(run: &'a Run<'a>, board: &'a Board, lane: Lane) -> Result<Self, kernels::Error> {
        let (queue, zero) = (board.queue(lane)?, (Event::new()?, 0));
        Ok(Self { at: Place { run, board, lane }, queue, zero, end: Event::new()? })
    }

    /// Turns to the next pass, and enqueues all of it where that is this lane's alone: whether it did.
    pub fn begin(&mut self, pass: &Pass) -> Result<bool, kernels::Error> {
        let Place { run, board, lane } = self.at;
        let tasks = run.engine.tasks_of(pass.phase, lane);
        if tasks.is_empty() {
            return Ok(false);
        }
        self.zero.1 = run.now();
        self.queue.record(&self.zero.0)?;
        if matches!(lane, Lane::Link(_)) {
            return Ok(false);
        }
        let mut sequences = run.sequences.write().expect("no lane has panicked");
        let room = self.at.room().first(Inputs::bytes(&run.engine.setup.extent));
        board.inputs().begin(pass, &mut sequences, self.at.samples(pass.phase), room);
        drop(sequences);
        let shape = board.inputs().shape().filter(|_| board.is_alone(pass.phase));
        let Some(mut shape) = shape else {
            return board.inputs().send(&mut self.queue).map(|()| false);
        };
        shape.push(run.tasks.into());
        let at = self.at;
        let whole = |queue: &mut Queue| {
            board.inputs().send(queue)?;
            tasks.iter().try_for_each(|&id| at.enqueue(queue, id, pass, run.tasks))?;
            at.sample(queue, pass)
        };
        let replayed = self.queue.repeat(&shape, whole)?;
        board.count(replayed);
        self.queue.record(&self.end)?;
        Ok(true)
    }

    /// Lets nothing of what is enqueued from now on start before `event`.
    pub fn follow(&self, event: &Event) -> Result<(), kernels::Error> {
        self.queue.follow(event)
    }

    /// Enqueues a task of `pass`.
    pub fn enqueue(&mut self, id: TaskId, pass: &Pass) -> Result<(), kernels::Error> {
        self.at.enqueue(&mut self.queue, id, pass, true)
    }

    /// Waits until all of a pass's tasks are done, and writes down when each was; of a pass that was enqueued as a `whole`
    /// only when all of them were, where nobody wants more.
    pub fn finish(&mut self, pass: &Pass, whole: bool, record: &mut Record) -> Result<(), kernels::Error> {
        let Place { run, board, lane } = self.at;
        if !whole && self.at.samples(pass.phase) {
            self.at.sample(&mut self.queue, pass)?;
            board.count(false);
        }
        self.queue.wait()?;
        let since = |event: &Event| {
            let seconds = event.since(&self.zero.0)?;
            Ok(self.zero.1 + seconds.to_nanos_ceil())
        };
        if whole && !run.tasks {
            record.tasks.push(Interval { start: self.zero.1, end: since(&self.end)? });
            return Ok(());
        }
        for &id in run.engine.tasks_of(pass.phase, lane) {
            let moments = board.moments(pass.phase, id).expect("every task of a GPU's lanes has moments");
            let interval = Interval { start: since(&moments.start)?, end: since(&moments.end)? };
            record.tasks.push(interval);
        }
        Ok(())
    }

    /// Appends the tokens that were chosen here, where this lane chooses them.
    pub fn append(&self, pass: &Pass) {
        let inputs = self.at.board.inputs();
        self.at.run.append(pass, inputs.chosen());
    }
}

impl Place<'_> {
    /// What its kernels work with, the pass's integers first.
    fn room(self) -> Values<u8> {
        let scratch = self.run.engine.store.scratch(self.board.device());
        scratch.lock().expect("no lane has panicked").values()
    }

    /// Whether tokens are chosen on this lane.
    fn samples(self, phase: Phase) -> bool {
        self.lane == Lane::Device(self.run.engine.setup.placement.head[0].device(phase))
    }

    /// Enqueues a task of `pass`, between its moments where it is `timed`.
    fn enqueue(self, queue: &mut Queue, id: TaskId, pass: &Pass, timed: bool) -> Result<(), kernels::Error> {
        let moments = self.board.moments(pass.phase, id).expect("as in `finish`");
        let task = &self.run.engine.programs.of(pass.phase).tasks[id.0 as usize];
        if timed {
            queue.record(&moments.start)?;
        }
        if !is_idle(task, pass) {
            self.perform(queue, task, pass)?;
        }
        if timed { queue.record(&moments.end) } else { Ok(()) }
    }

    fn perform(self, queue: &mut Queue, task: &Task, pass: &Pass) -> Result<(), kernels::Error> {
        let engine = self.run.engine;
        let (store, model) = (&engine.store, &engine.setup.model);
        let (part, turns) = (task.micro_batch, &pass.parts[task.micro_batch.index as usize]);
        match (&task.action, self.lane) {
            (Action::Compute { operator, rows, source }, Lane::Device(device)) => {
                let job = Job { layer: task.layer, part, operator: *operator, rows, source: *source };
                let (view, ends) = (self.board.inputs().view(part), &turns.ends[..]);
                let (setup, phase) = (&engine.setup, pass.phase);
                let scratch = self.room().from(Inputs::bytes(&setup.extent));
                Worker { setup, store, device, phase, view, ends, queue, scratch }.run(job)
            }
            (Action::Hop { .. }, Lane::Device(_)) => {
                let hop = hop_of(task, self.lane).expect("it is a hop");
                transfer::send_hop(queue, store, model, turns, &hop)
            }
            (Action::FetchWeights { sublayer, rows, device, slot }, _) => {
                let part = store.part(task.layer, *sublayer, rows.start);
                transfer::fetch_weights(queue, part, store.weight_slot(*device, *slot))
            }
            (Action::FetchKv { device, slot }, _) => {
                let (home, slot) = transfer::kv(store, task, *device, *slot);
                transfer::copy_kv(queue, store.kv_shape(part), slot, home, turns, |span| 0..span.past)
            }
            (Action::StoreKv { device, slot }, _) => {
                let (home, slot) = transfer::kv(store, task, *device, *slot);
                let new = |span: &Span| span.past..span.past + span.new;
                transfer::copy_kv(queue, store.kv_shape(part), home, slot, turns, new)
            }
            (action, lane) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
        }
    }

    /// Enqueues the choice of the pass's tokens from its logits.
    fn sample(self, queue: &mut Queue, pass: &Pass) -> Result<(), kernels::Error> {
        let (engine, parts) = (self.run.engine, MicroBatch::all(pass.parts.len() as u64));
        let vocab = engine.setup.model.vocab as usize;
        for part in parts {
            let view = self.board.inputs().view(part);
            let logits = read(engine.store.activation(self.board.device(), Buffer::Logits, part));
            let logits = logits.values().first(view.chosen.len() * vocab);
            queue.run(&calls::sample(view.chosen, logits, view.choices))?;
        }
        Ok(())
    }
}
