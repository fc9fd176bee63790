//! A lane at work: its tasks in order, each when its dependencies in other lanes have ended.

pub(crate) use crate::compute::Job;
use crate::compute::Worker;
use crate::gpu;
use crate::pass::Pass;
use crate::run::Run;
use crate::transfer::{self, Hop};
use kernels::Flag;
use planner::{Action, Lane, Task, TaskId};
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

/// Who does a lane's tasks.
enum Hands<'a> {
    /// The host's threads; a link's lane has none but its own.
    Host(Option<Worker<'a>>),
    /// A GPU, to which they are enqueued.
    Gpu(gpu::Stream<'a>),
}

/// Runs every pass of `run` on lane number `index`. Whoever is done last with a pass does what is to be done `between`.
pub(crate) fn work(run: &Run<'_>, index: usize, between: &dyn Fn()) {
    let engine = run.engine;
    let (lane, board) = (engine.lanes[index], engine.board.as_ref());
    let mut scratch = None;
    let hands = match (board.filter(|board| board.works_for(&engine.setup, lane)), lane) {
        (Some(board), _) => gpu::Stream::new(run, board, lane).map(Hands::Gpu),
        (None, Lane::Link(_)) => Ok(Hands::Host(None)),
        (None, Lane::Device(device)) => {
            let pool = engine.pool(device);
            // Where the system takes the core away meanwhile, running elsewhere is slower and still right.
            if let Err(error) = pool.pin_caller() {
                tracing::warn!("{error}");
            }
            let scratch = scratch.insert(engine.store.scratch(device).lock().expect("no lane has panicked"));
            let worker = Worker::new(&engine.setup, &engine.store, device, pool, scratch);
            // Of a GPU it waits for events, and fetches activations.
            board.map_or(Ok(()), |board| board.gpu().bind()).map(|()| Hands::Host(Some(worker)))
        }
    };
    if let Err(error) = hands.and_then(|mut hands| passes(run, index, between, &mut hands)) {
        run.fail(error);
    }
}

fn passes(
    run: &Run<'_>,
    index: usize,
    between: &dyn Fn(),
    hands: &mut Hands<'_>,
) -> Result<(), kernels::Error> {
    let engine = run.engine;
    let lane = engine.lanes[index];
    // A device's lane answers sooner for having spun. A link's has no core of its own and must not spin on another's.
    let wait = |flag: &Flag| if matches!(lane, Lane::Device(_)) { flag.wait() } else { flag.wait_asleep() };
    // All of the record's memory now: nothing is allocated between tasks.
    let [prefill, decode] = [Phase::Prefill, Phase::Decode].map(|phase| engine.tasks_of(phase, lane).len());
    run.record(index).tasks.reserve(prefill.max(decode));
    run.record(index).arrived = run.now();
    for number in 0.. {
        let Some(pass) = run.next(number, between, wait) else { break };
        let tasks = engine.tasks_of(pass.phase, lane);
        let whole = match hands {
            Hands::Gpu(stream) => stream.begin(&pass)?,
            Hands::Host(worker) => {
                worker.iter_mut().for_each(|worker| worker.begin(&pass));
                false
            }
        };
        let mut record = run.record(index);
        for &id in if whole { &[] } else { tasks } {
            let task = &engine.programs.of(pass.phase).tasks[id.0 as usize];
            for &earlier in &task.after {
                wait(run.flag(earlier));
                if run.is_aborted() {
                    return Ok(());
                }
                // A flag of a GPU's task says that it is enqueued.
                let moments = engine.board.as_ref().and_then(|board| board.moments(pass.phase, earlier));
                match (moments, &hands) {
                    (None, _) => {}
                    (Some(moments), Hands::Gpu(stream)) => stream.follow(&moments.end)?,
                    (Some(moments), Hands::Host(_)) => moments.end.wait()?,
                }
            }
            if run.is_aborted() {
                return Ok(());
            }
            match hands {
                Hands::Gpu(stream) => stream.enqueue(id, &pass)?,
                Hands::Host(worker) => {
                    let start = run.now();
                    perform(run, lane, id, &pass, worker.as_mut())?;
                    record.tasks.push(Interval { start, end: run.now() });
                }
            }
            if engine.is_awaited(pass.phase, id) {
                run.flag(id).set();
            }
        }
        if let Hands::Gpu(stream) = hands {
            stream.finish(&pass, whole, &mut record)?;
        }
        if lane == Lane::Device(engine.setup.placement.head[0].device(pass.phase)) {
            match hands {
                Hands::Gpu(stream) => stream.append(&pass),
                Hands::Host(_) => run.sample(&pass)?,
            }
        }
        record.arrived = run.now();
    }
    Ok(())
}

/// Whether nobody needs a task in this pass. What is fetched for a micro-batch is there for those that follow.
pub(crate) fn is_idle(task: &Task, pass: &Pass) -> bool {
    let shares = matches!(task.action, Action::FetchWeights { .. });
    let users = pass.parts[task.micro_batch.index as usize..].iter();
    users.take(if shares { usize::MAX } else { 1 }).all(|part| part.spans.is_empty())
}

/// A task of the host.
fn perform(
    run: &Run<'_>,
    lane: Lane,
    id: TaskId,
    pass: &Pass,
    worker: Option<&mut Worker<'_>>,
) -> Result<(), kernels::Error> {
    let engine = run.engine;
    let task = &engine.programs.of(pass.phase).tasks[id.0 as usize];
    let store = &engine.store;
    let part = task.micro_batch;
    let turns = &pass.parts[part.index as usize];
    if is_idle(task, pass) {
        return Ok(());
    }
    match (&task.action, lane, worker) {
        (Action::Compute { operator, rows, source }, _, Some(worker)) => {
            let job = Job { layer: task.layer, part, operator: *operator, rows, source: *source };
            worker.run(job, &run.sequences);
        }
        (Action::Hop { from, link, .. }, ..) => {
            let (hop, model) = (hop_of(task, lane).expect("it is one"), &engine.setup.model);
            match &engine.board {
                Some(board) if board.device() == *from => {
                    gpu::fetch_hop(&mut *board.queue(lane)?, store, model, turns, &hop)?;
                }
                _ => transfer::hop(store, engine.link(*link), model, turns, &hop),
            }
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
    Ok(())
}

/// The hop that a task of a device's lane is.
pub(crate) fn hop_of(task: &Task, lane: Lane) -> Option<Hop<'_>> {
    let (Action::Hop { buffer, columns, from, .. }, Lane::Device(to)) = (&task.action, lane) else {
        return None;
    };
    let (part, head) = (task.micro_batch, task.layer.is_none());
    Some(Hop { buffer: *buffer, part, columns, from: *from, to, head })
}
