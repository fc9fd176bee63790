//! A lane at work: its tasks in order, each when its dependencies in other lanes have ended.

use crate::compute::{Job, Worker};
use crate::run::Run;
use crate::transfer::{self, Hop};
use kernels::Flag;
use planner::{Action, Lane, TaskId};
use scenarios::Step;
use std::sync::mpsc::Sender;

/// When something ran, in nanoseconds since the run's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub start: u64,
    pub end: u64,
}

/// What a lane recorded.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Its tasks' times: by step, then in the lane's order.
    pub tasks: Vec<Interval>,
    /// When it began waiting for the first step, and when it was done with each.
    pub arrivals: Vec<u64>,
}

/// Runs every step of `run` on `lane`. `said` hears the tokens, where this lane samples them.
pub(crate) fn work(run: &Run<'_>, lane: Lane, said: &Sender<Vec<u32>>) -> Record {
    let engine = run.engine;
    match lane {
        Lane::Link(_) => steps(run, lane, said, None),
        Lane::Device(device) => {
            let pool = engine.pool(device);
            // Where the system takes the core away meanwhile, running elsewhere is slower and still right.
            if let Err(error) = pool.pin_caller() {
                tracing::warn!("{error}");
            }
            let mut scratch = engine.store.scratch(device).lock().expect("no lane has panicked");
            let worker = Worker::new(&engine.setup, &engine.store, device, pool, &mut scratch);
            steps(run, lane, said, Some(worker))
        }
    }
}

fn steps(run: &Run<'_>, lane: Lane, said: &Sender<Vec<u32>>, mut worker: Option<Worker<'_>>) -> Record {
    let engine = run.engine;
    // A device's lane answers sooner for having spun. A link's has no core of its own and must not spin on another's.
    let wait = |flag: &Flag| if matches!(lane, Lane::Device(_)) { flag.wait() } else { flag.wait_asleep() };
    let tasks = |step: &Step| engine.tasks_of(step.phase, lane);
    // All of the record's memory now: nothing is allocated between tasks.
    let total = run.steps.iter().map(|step| tasks(step).len()).sum();
    let mut record =
        Record { tasks: Vec::with_capacity(total), arrivals: Vec::with_capacity(run.steps.len() + 1) };
    record.arrivals.push(run.now());
    run.gates[0].pass(wait);
    for (index, step) in run.steps.iter().enumerate() {
        if let Some(worker) = &mut worker {
            worker.begin(step);
        }
        for &id in tasks(step) {
            let task = &engine.programs.of(step.phase).tasks[id.0 as usize];
            task.after.iter().for_each(|&earlier| wait(run.flag(index, earlier)));
            if run.is_aborted() {
                return record;
            }
            let start = run.now();
            perform(run, lane, id, step, worker.as_mut());
            let end = run.now();
            record.tasks.push(Interval { start, end });
            if engine.is_awaited(step.phase, id) {
                run.flag(index, id).set();
            }
        }
        if lane == Lane::Device(engine.setup.placement.head[0].device(step.phase)) {
            // Nobody listens any more where the run's caller has gone; the tokens are in the history too.
            run.sample(step).into_iter().for_each(|tokens| drop(said.send(tokens)));
        }
        record.arrivals.push(run.now());
        run.gates[index + 1].pass(wait);
        if run.is_aborted() {
            return record;
        }
    }
    record
}

fn perform(run: &Run<'_>, lane: Lane, id: TaskId, step: &Step, worker: Option<&mut Worker<'_>>) {
    let engine = run.engine;
    let task = &engine.programs.of(step.phase).tasks[id.0 as usize];
    let store = &engine.store;
    let (part, step) = (task.micro_batch, &task.micro_batch.step(step));
    if step.batch == 0 {
        return;
    }
    match (&task.action, lane, worker) {
        (Action::Compute { operator, rows, source }, _, Some(worker)) => {
            let job = Job { layer: task.layer, part, operator: *operator, rows, source: *source };
            worker.run(job, &run.history);
        }
        (Action::Hop { buffer, columns, from, link }, Lane::Device(to), _) => {
            let hop = Hop { buffer: *buffer, part, columns, from: *from, to, head: task.layer.is_none() };
            transfer::hop(store, engine.link(*link), &engine.setup.model, step, &hop);
        }
        (Action::FetchWeights { sublayer, rows, device, slot }, Lane::Link(link), _) => {
            let link = engine.link(link);
            transfer::fetch_weights(store, link, task.layer, *sublayer, rows.start, *device, *slot);
        }
        (Action::FetchKv { device, slot }, Lane::Link(link), _) => {
            let layer = task.layer.expect("attention is in a layer");
            transfer::fetch_kv(store, engine.link(link), layer, part, *device, *slot, step);
        }
        (Action::StoreKv { device, slot }, Lane::Link(link), _) => {
            let layer = task.layer.expect("attention is in a layer");
            transfer::store_kv(store, engine.link(link), layer, part, *device, *slot, step);
        }
        (action, lane, _) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
    }
}
