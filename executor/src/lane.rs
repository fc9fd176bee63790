//! A lane at work: its tasks in order, each when its dependencies in other lanes have ended.

use crate::compute::{Job, Worker};
use crate::pass::Pass;
use crate::run::Run;
use crate::transfer::{self, Hop};
use kernels::Flag;
use planner::{Action, Lane, TaskId};
use scenarios::Phase;

/// When something ran, in nanoseconds since the run's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub start: u64,
    pub end: u64,
}

/// What a lane recorded of a pass.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Its tasks' times, in the lane's order.
    pub tasks: Vec<Interval>,
    /// When it was done with the pass, or ready for the first.
    pub arrived: u64,
}

/// Runs every pass of `run` on lane number `index`. Whoever is done last with a pass does what is to be done `between`.
pub(crate) fn work(run: &Run<'_>, index: usize, between: &dyn Fn()) {
    let engine = run.engine;
    match engine.lanes[index] {
        Lane::Link(_) => passes(run, index, between, None),
        Lane::Device(device) => {
            let pool = engine.pool(device);
            // Where the system takes the core away meanwhile, running elsewhere is slower and still right.
            if let Err(error) = pool.pin_caller() {
                tracing::warn!("{error}");
            }
            let mut scratch = engine.store.scratch(device).lock().expect("no lane has panicked");
            let worker = Worker::new(&engine.setup, &engine.store, device, pool, &mut scratch);
            passes(run, index, between, Some(worker));
        }
    }
}

fn passes(run: &Run<'_>, index: usize, between: &dyn Fn(), mut worker: Option<Worker<'_>>) {
    let engine = run.engine;
    let lane = engine.lanes[index];
    // A device's lane answers sooner for having spun. A link's has no core of its own and must not spin on another's.
    let wait = |flag: &Flag| if matches!(lane, Lane::Device(_)) { flag.wait() } else { flag.wait_asleep() };
    // All of the record's memory now: nothing is allocated between tasks.
    let [prefill, decode] = [Phase::Prefill, Phase::Decode].map(|phase| engine.tasks_of(phase, lane).len());
    run.record(index).tasks.reserve(prefill.max(decode));
    run.record(index).arrived = run.now();
    for number in 0.. {
        let Some(pass) = run.next(number, between, wait) else { return };
        if let Some(worker) = &mut worker {
            worker.begin(&pass);
        }
        let mut record = run.record(index);
        for &id in engine.tasks_of(pass.phase, lane) {
            let task = &engine.programs.of(pass.phase).tasks[id.0 as usize];
            task.after.iter().for_each(|&earlier| wait(run.flag(earlier)));
            if run.is_aborted() {
                return;
            }
            let start = run.now();
            perform(run, lane, id, &pass, worker.as_mut());
            let end = run.now();
            record.tasks.push(Interval { start, end });
            if engine.is_awaited(pass.phase, id) {
                run.flag(id).set();
            }
        }
        if lane == Lane::Device(engine.setup.placement.head[0].device(pass.phase)) {
            run.sample(&pass);
        }
        record.arrived = run.now();
    }
}

fn perform(run: &Run<'_>, lane: Lane, id: TaskId, pass: &Pass, worker: Option<&mut Worker<'_>>) {
    let engine = run.engine;
    let task = &engine.programs.of(pass.phase).tasks[id.0 as usize];
    let store = &engine.store;
    let part = task.micro_batch;
    let turns = &pass.parts[part.index as usize];
    // What is fetched for a micro-batch is there for those that follow.
    let shares = matches!(task.action, Action::FetchWeights { .. });
    let mut users = pass.parts[part.index as usize..].iter().take(if shares { usize::MAX } else { 1 });
    if users.all(|part| part.spans.is_empty()) {
        return;
    }
    match (&task.action, lane, worker) {
        (Action::Compute { operator, rows, source }, _, Some(worker)) => {
            let job = Job { layer: task.layer, part, operator: *operator, rows, source: *source };
            worker.run(job, &run.sequences);
        }
        (Action::Hop { buffer, columns, from, link }, Lane::Device(to), _) => {
            let hop = Hop { buffer: *buffer, part, columns, from: *from, to, head: task.layer.is_none() };
            transfer::hop(store, engine.link(*link), &engine.setup.model, turns, &hop);
        }
        (Action::FetchWeights { sublayer, rows, device, slot }, Lane::Link(link), _) => {
            let link = engine.link(link);
            transfer::fetch_weights(store, link, task.layer, *sublayer, rows.start, *device, *slot);
        }
        (Action::FetchKv { device, slot }, Lane::Link(link), _) => {
            let layer = task.layer.expect("attention is in a layer");
            transfer::fetch_kv(store, engine.link(link), layer, part, *device, *slot, turns);
        }
        (Action::StoreKv { device, slot }, Lane::Link(link), _) => {
            let layer = task.layer.expect("attention is in a layer");
            transfer::store_kv(store, engine.link(link), layer, part, *device, *slot, turns);
        }
        (action, lane, _) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
    }
}
