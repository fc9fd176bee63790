//! A lane of a GPU at work: tasks go into its stream between two events.

use super::board::Board;
use super::transfer;
use super::worker::Worker;
use crate::lane::{Interval, Job, Record, hop_of, is_idle};
use crate::pass::Pass;
use crate::run::Run;
use kernels::Span;
use kernels::cuda::{Event, Queue};
use planner::{Action, Lane, TaskId};
use std::sync::MutexGuard;

/// A lane's stream during a run.
pub(crate) struct Stream<'a> {
    run: &'a Run<'a>,
    board: &'a Board,
    lane: Lane,
    queue: MutexGuard<'a, Queue>,
    /// The current pass's beginning: on the GPU's clock, and in nanoseconds on the run's.
    zero: (Event, u64),
}

impl<'a> Stream<'a> {
    pub fn new(run: &'a Run<'a>, board: &'a Board, lane: Lane) -> Result<Self, kernels::Error> {
        Ok(Self { run, board, lane, queue: board.queue(lane)?, zero: (Event::new()?, 0) })
    }

    /// Turns to the next pass.
    pub fn begin(&mut self, pass: &Pass) -> Result<(), kernels::Error> {
        self.zero.1 = self.run.now();
        self.queue.record(&self.zero.0)?;
        if matches!(self.lane, Lane::Device(_)) {
            let sequences = self.run.sequences.read().expect("no lane has panicked");
            self.board.inputs().begin(pass, &sequences, &mut self.queue)?;
        }
        Ok(())
    }

    /// Lets nothing of what is enqueued from now on start before `event`.
    pub fn follow(&self, event: &Event) -> Result<(), kernels::Error> {
        self.queue.follow(event)
    }

    /// Enqueues a task of `pass`.
    pub fn enqueue(&mut self, id: TaskId, pass: &Pass) -> Result<(), kernels::Error> {
        let moments = self.board.moments(pass.phase, id).expect("every task of a GPU's lanes has moments");
        self.queue.record(&moments.start)?;
        let engine = self.run.engine;
        let (store, model) = (&engine.store, &engine.setup.model);
        let task = &engine.programs.of(pass.phase).tasks[id.0 as usize];
        let (part, turns) = (task.micro_batch, &pass.parts[task.micro_batch.index as usize]);
        let queue = &mut *self.queue;
        if !is_idle(task, pass) {
            match (&task.action, self.lane) {
                (Action::Compute { operator, rows, source }, Lane::Device(device)) => {
                    let job = Job { layer: task.layer, part, operator: *operator, rows, source: *source };
                    let (view, ends) = (self.board.inputs().view(part), &turns.ends[..]);
                    Worker {
                        setup: &engine.setup,
                        store,
                        device,
                        view,
                        ends,
                        queue,
                        scratch: self.board.scratch(),
                    }
                    .run(job)?;
                }
                (Action::Hop { .. }, Lane::Device(_)) => {
                    let hop = hop_of(task, self.lane).expect("it is a hop");
                    transfer::send_hop(queue, store, model, turns, &hop)?;
                }
                (Action::FetchWeights { sublayer, rows, device, slot }, _) => {
                    let part = store.part(task.layer, *sublayer, rows.start);
                    transfer::fetch_weights(queue, part, store.weight_slot(*device, *slot))?;
                }
                (Action::FetchKv { device, slot }, _) => {
                    let (home, slot) = transfer::kv(store, task, *device, *slot);
                    transfer::copy_kv(queue, store.kv_shape(part), slot, home, turns, |span| 0..span.past)?;
                }
                (Action::StoreKv { device, slot }, _) => {
                    let (home, slot) = transfer::kv(store, task, *device, *slot);
                    let new = |span: &Span| span.past..span.past + span.new;
                    transfer::copy_kv(queue, store.kv_shape(part), home, slot, turns, new)?;
                }
                (action, lane) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
            }
        }
        self.queue.record(&moments.end)
    }

    /// Waits until all of a pass's tasks are done, and writes down when each was.
    pub fn finish(&mut self, pass: &Pass, record: &mut Record) -> Result<(), kernels::Error> {
        self.queue.wait()?;
        let since = |event: &Event| {
            let seconds = event.since(&self.zero.0)?;
            Ok(self.zero.1 + seconds.to_nanos_ceil())
        };
        for &id in self.run.engine.tasks_of(pass.phase, self.lane) {
            let moments = self.board.moments(pass.phase, id).expect("as above");
            let interval = Interval { start: since(&moments.start)?, end: since(&moments.end)? };
            record.tasks.push(interval);
        }
        Ok(())
    }
}
