//! A lane of a GPU: tasks go into its stream between two events, or a whole pass goes at once.

use crate::batch::pass::Pass;
use crate::compute::gpu::transfer;
use crate::compute::gpu::worker::{self, GpuWorker};
use crate::compute::job::OperatorJob;
use crate::compute::transfer::Hop;
use crate::gpu::inputs::PassInputs;
use crate::gpu::runtime::GpuRuntime;
use crate::run::shared::{LaneRecord, SharedRun, TaskInterval, TaskTimes};
use crate::store::locks::{POISONED, read};
use kernels::cuda::calls::{self, GpuSlice};
use kernels::cuda::{GpuEvent, Queue};
use planner::{Action, Lane, MicroBatch, Task, TaskId};
use scenarios::{ActivationBuffer, Phase};
use std::sync::MutexGuard;

/// A lane's stream during a run.
pub(crate) struct GpuLane<'a> {
    context: LaneContext<'a>,
    queue: MutexGuard<'a, Queue>,
    /// The start of the current pass on the GPU's clock.
    start: GpuEvent,
    /// The same in nanoseconds on the run's clock.
    start_ns: u64,
    /// The end of the last pass, where its tasks are timed together.
    end: GpuEvent,
    /// A sum that is left to the norm behind it.
    held: Option<TaskId>,
}

/// Why the events of a task are recorded.
#[derive(Clone, Copy)]
struct EventsWanted {
    /// Its time is wanted.
    times: bool,
    /// Another lane waits for its end.
    end: bool,
}

/// What a stream works for.
#[derive(Clone, Copy)]
struct LaneContext<'a> {
    run: &'a SharedRun<'a>,
    gpu: &'a GpuRuntime,
    lane: Lane,
}

impl<'a> GpuLane<'a> {
    pub fn new(
        run: &'a SharedRun<'a>,
        gpu: &'a GpuRuntime,
        lane: Lane,
    ) -> Result<Self, kernels::KernelError> {
        let (queue, start) = (gpu.queue(lane)?, GpuEvent::new()?);
        Ok(Self {
            context: LaneContext { run, gpu, lane },
            queue,
            start,
            start_ns: 0,
            end: GpuEvent::new()?,
            held: None,
        })
    }

    /// Begins the next pass. Where this lane runs the pass alone, all of it is enqueued; returns
    /// whether it was.
    pub fn begin(&mut self, pass: &Pass) -> Result<bool, kernels::KernelError> {
        let LaneContext { run, gpu, lane } = self.context;
        let tasks = run.engine.tasks_of(pass.phase, lane);
        if tasks.is_empty() {
            return Ok(false);
        }
        self.start_ns = run.now();
        self.queue.record(&self.start)?;
        if matches!(lane, Lane::Link(_)) {
            return Ok(false);
        }
        let mut sequences = run.sequences.write().expect(POISONED);
        let room = self.context.scratch().first(PassInputs::bytes(&run.engine.setup.extent));
        gpu.inputs().begin(pass, &mut sequences, self.context.samples(pass.phase), room);
        drop(sequences);
        let shape = gpu.inputs().shape().filter(|_| gpu.is_alone(pass.phase));
        let Some(mut shape) = shape else {
            return gpu.inputs().send(&mut self.queue).map(|()| false);
        };
        let each = run.times == TaskTimes::Each;
        shape.push(each.into());
        let context = self.context;
        let whole = |queue: &mut Queue| {
            gpu.inputs().send(queue)?;
            let mut held = None;
            let wanted = EventsWanted { times: each, end: false };
            tasks.iter().try_for_each(|&id| context.enqueue(queue, &mut held, id, pass, wanted))?;
            context.release(queue, &mut held, pass)?;
            context.sample(queue, pass)
        };
        let replayed = self.queue.repeat(&shape, whole)?;
        gpu.count_pass(replayed);
        self.queue.record(&self.end)?;
        Ok(true)
    }

    /// Lets work that is enqueued from now on start only after `event`.
    pub fn follow(&self, event: &GpuEvent) -> Result<(), kernels::KernelError> {
        self.queue.follow(event)
    }

    /// Enqueues a task of `pass`, between its events where another lane waits for it or its time is
    /// wanted.
    pub fn enqueue(&mut self, id: TaskId, pass: &Pass) -> Result<(), kernels::KernelError> {
        let run = self.context.run;
        let wanted =
            EventsWanted { times: run.times != TaskTimes::None, end: run.engine.is_awaited(pass.phase, id) };
        self.context.enqueue(&mut self.queue, &mut self.held, id, pass, wanted)
    }

    /// Waits until all tasks of a pass have ended, and records when each ran, or the time of all
    /// tasks together where no more is wanted. Of a pass that was enqueued as a `whole` that is the
    /// time in which the GPU was busy, too. A lane without tasks in the phase records nothing.
    pub fn finish(
        &mut self,
        pass: &Pass,
        whole: bool,
        record: &mut LaneRecord,
    ) -> Result<(), kernels::KernelError> {
        let LaneContext { run, gpu, lane } = self.context;
        if run.engine.tasks_of(pass.phase, lane).is_empty() {
            return Ok(());
        }
        self.context.release(&mut self.queue, &mut self.held, pass)?;
        if !whole && self.context.samples(pass.phase) {
            self.context.sample(&mut self.queue, pass)?;
            gpu.count_pass(false);
        }
        let together = run.times == TaskTimes::None || (whole && run.times == TaskTimes::Busy);
        if together && !whole {
            self.queue.record(&self.end)?;
        }
        self.queue.wait()?;
        let nanos = |event: &GpuEvent| {
            let seconds = event.since(&self.start)?;
            Ok(self.start_ns + seconds.to_nanos_ceil())
        };
        if together {
            record.tasks.push(TaskInterval { start: self.start_ns, end: nanos(&self.end)? });
            return Ok(());
        }
        for &id in run.engine.tasks_of(pass.phase, lane) {
            let events = gpu.events(pass.phase, id).expect("every task of a GPU's lanes has events");
            let interval = TaskInterval { start: nanos(&events.start)?, end: nanos(&events.end)? };
            record.tasks.push(interval);
        }
        Ok(())
    }

    /// Appends the tokens that the GPU chose, on the lane that chooses them.
    ///
    /// # Errors
    /// A logit is NaN or infinite.
    pub fn append(&self, pass: &Pass) -> Result<(), kernels::KernelError> {
        let inputs = self.context.gpu.inputs();
        if inputs.chosen().any(|token| token < 0) {
            return Err(kernels::KernelError::NotFinite);
        }
        self.context.run.append(pass, inputs.chosen().map(|token| token as u32));
        Ok(())
    }
}

impl<'a> LaneContext<'a> {
    /// The working memory of the GPU's kernels. The integers of the pass are at its start.
    fn scratch(self) -> GpuSlice<u8> {
        let scratch = self.run.engine.store.scratch(self.gpu.device());
        scratch.lock().expect(POISONED).values()
    }

    /// Whether tokens are chosen on this lane.
    fn samples(self, phase: Phase) -> bool {
        self.lane == Lane::Device(self.run.engine.setup.placement.head[0].device(phase))
    }

    /// Enqueues a task of `pass`, between its events where they are wanted. A sum whose end nobody
    /// waits for is `held` until the next task, since a norm takes it along: then it takes no time
    /// of its own.
    fn enqueue(
        self,
        queue: &mut Queue,
        held: &mut Option<TaskId>,
        id: TaskId,
        pass: &Pass,
        wanted: EventsWanted,
    ) -> Result<(), kernels::KernelError> {
        let events = self.gpu.events(pass.phase, id).expect("as in `finish`");
        let (task, setup) = (self.task(pass, id), &self.run.engine.setup);
        let sum = held.filter(|&sum| self.takes_along(task, self.task(pass, sum), pass));
        if sum.is_some() {
            *held = None;
        }
        self.release(queue, held, pass)?;
        let has_events = wanted.times || wanted.end;
        if has_events {
            queue.record(&events.start)?;
        }
        if !wanted.end && job_of(task).is_some_and(|job| worker::is_plain_sum(setup, job)) {
            *held = Some(id);
        } else {
            self.perform(queue, task, pass, sum)?;
        }
        if has_events { queue.record(&events.end) } else { Ok(()) }
    }

    /// Enqueues a sum that was held, if there is one.
    fn release(
        self,
        queue: &mut Queue,
        held: &mut Option<TaskId>,
        pass: &Pass,
    ) -> Result<(), kernels::KernelError> {
        held.take().map_or(Ok(()), |id| self.perform(queue, self.task(pass, id), pass, None))
    }

    fn task(self, pass: &Pass, id: TaskId) -> &'a Task {
        &self.run.engine.programs.program(pass.phase).tasks[id.0 as usize]
    }

    /// Whether `task` is a norm that takes the sum along.
    fn takes_along(self, task: &Task, sum: &Task, pass: &Pass) -> bool {
        let share = &pass.parts[task.micro_batch.index as usize];
        let all = share.ends.len() == self.gpu.inputs().view(task.micro_batch).rows();
        task.micro_batch == sum.micro_batch && job_of(task).is_some_and(|job| worker::is_whole_norm(job, all))
    }

    /// Enqueues what a task does, and the sum that it takes along.
    fn perform(
        self,
        queue: &mut Queue,
        task: &Task,
        pass: &Pass,
        sum: Option<TaskId>,
    ) -> Result<(), kernels::KernelError> {
        if pass.is_idle(task) {
            return Ok(());
        }
        let engine = self.run.engine;
        let (store, model) = (&engine.store, engine.setup.model.layer_or_ends(task.layer));
        let share = &pass.parts[task.micro_batch.index as usize];
        match (&task.action, self.lane) {
            (Action::Compute { .. }, Lane::Device(device)) => {
                let (view, ends) = (self.gpu.inputs().view(task.micro_batch), &share.ends[..]);
                let (setup, phase) = (&engine.setup, pass.phase);
                let scratch = self.scratch().from(PassInputs::bytes(&setup.extent));
                let sum = sum.and_then(|id| job_of(self.task(pass, id)));
                let job = job_of(task).expect("it computes");
                GpuWorker { setup, store, model, device, phase, view, ends, queue, scratch, sum }.run(job)
            }
            (Action::Hop { .. }, Lane::Device(_)) => {
                let hop = Hop::from_task(task, self.lane).expect("it is a hop");
                transfer::send_hop(queue, store, model, share, &hop)
            }
            (Action::FetchWeights { sublayer, rows, device, slot }, _) => {
                let slice = store.slice(task.layer, *sublayer, rows.start);
                transfer::fetch_weights(queue, slice, store.weight_slot(*device, *slot))
            }
            (Action::FetchKv { device, slot }, _) => {
                transfer::fetch_kv(queue, store, task, (*device, *slot), share)
            }
            (Action::StoreKv { device, slot }, _) => {
                transfer::store_kv(queue, store, task, (*device, *slot), share)
            }
            (action, lane) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
        }
    }

    /// Enqueues the choice of the pass's tokens from its logits.
    fn sample(self, queue: &mut Queue, pass: &Pass) -> Result<(), kernels::KernelError> {
        let (engine, parts) = (self.run.engine, MicroBatch::all(pass.parts.len() as u64));
        let vocab = engine.setup.model.vocab as usize;
        for part in parts {
            let view = self.gpu.inputs().view(part);
            let logits = read(engine.store.activation(self.gpu.device(), ActivationBuffer::Logits, part));
            let logits = logits.values().first(view.chosen.len() * vocab);
            queue.run(&calls::sample(view.chosen, logits, view.choices))?;
        }
        Ok(())
    }
}

/// What a task computes; nothing where it moves data.
fn job_of(task: &Task) -> Option<OperatorJob<'_>> {
    match &task.action {
        Action::Compute { operator, rows, source } => Some(OperatorJob {
            layer: task.layer,
            part: task.micro_batch,
            operator: *operator,
            rows,
            source: *source,
        }),
        _ => None,
    }
}
