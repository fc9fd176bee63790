//! A lane at work: its tasks in order, each after its dependencies in other lanes.

use crate::batch::pass::Pass;
use crate::compute::gpu::transfer as gpu_transfer;
use crate::compute::host::HostWorker;
use crate::compute::job::OperatorJob;
use crate::compute::transfer::{self, Hop};
use crate::run::gpu_lane::GpuLane;
use crate::run::lane_sync::LaneSync;
use crate::run::shared::{BetweenPasses, SharedRun, TaskInterval};
use crate::store::locks::POISONED;
use kernels::{Flag, Word};
use planner::{Action, Lane, TaskId};
use scenarios::Phase;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// What carries out a lane's tasks.
enum LaneWorker<'a> {
    /// The host's threads. A link's lane has only its own thread, and no worker.
    Host(Option<HostWorker<'a>>),
    /// A GPU, to which the tasks are enqueued.
    Gpu(GpuLane<'a>),
}

impl SharedRun<'_> {
    /// Runs passes on one thread per lane until `schedule` returns `None`. It is called between
    /// passes, by the thread of the lane that finishes last; `on` receives its messages on the
    /// caller's thread.
    pub fn play<T: Send>(
        &self,
        mut schedule: impl FnMut(&mut BetweenPasses<'_>, &Sender<T>) -> Option<Pass> + Send,
        on: impl FnMut(T),
    ) {
        let (sender, receiver) = channel();
        let schedule = Mutex::new(move |state: &mut BetweenPasses<'_>| schedule(state, &sender));
        // It is dropped with the last lane, and with it the sender, which ends the receiver's loop.
        let advance = Arc::new(move || self.advance(&mut *schedule.lock().expect(POISONED)));
        let sync = &self.lane_sync::<AtomicU32>();
        let result = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.engine.lanes.len())
                .map(|lane| {
                    let advance = Arc::clone(&advance);
                    scope.spawn(move || run_lane(self, sync, lane, &*advance))
                })
                .collect();
            drop(advance);
            receiver.into_iter().for_each(on);
            threads.into_iter().try_for_each(|thread| thread.join().and_then(|result| result))
        });
        result.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// What its lanes wait with.
    pub(super) fn lane_sync<W: Word>(&self) -> LaneSync<W> {
        let programs = &self.engine.programs;
        LaneSync::new(self.engine.lanes.len(), programs.prefill.tasks.len().max(programs.decode.tasks.len()))
    }
}

/// Runs every pass of `run` on lane number `index`; returns its panic. A lane that fails ends the
/// others too instead of leaving them waiting.
pub(super) fn run_lane<W: Word>(
    run: &SharedRun<'_>,
    sync: &LaneSync<W>,
    index: usize,
    advance: &dyn Fn(),
) -> Result<(), Box<dyn Any + Send>> {
    let result = catch_unwind(AssertUnwindSafe(|| try_lane(run, sync, index, advance)));
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            run.keep_failure(error);
            sync.abort();
        }
        Err(panic) => {
            sync.abort();
            return Err(panic);
        }
    }
    Ok(())
}

fn try_lane<W: Word>(
    run: &SharedRun<'_>,
    sync: &LaneSync<W>,
    index: usize,
    advance: &dyn Fn(),
) -> Result<(), kernels::KernelError> {
    let engine = run.engine;
    let (lane, gpu) = (engine.lanes[index], engine.gpu.as_ref());
    let mut scratch = None;
    let worker = match (gpu.filter(|gpu| gpu.works_for(&engine.setup, lane)), lane) {
        (Some(gpu), _) => GpuLane::new(run, gpu, lane).map(LaneWorker::Gpu),
        (None, Lane::Link(_)) => Ok(LaneWorker::Host(None)),
        (None, Lane::Device(device)) => {
            let pool = engine.pool(device);
            // Where the system has taken the core away, running elsewhere is slower but still
            // right.
            if let Err(error) = pool.pin_caller() {
                tracing::warn!("{error}");
            }
            let scratch = scratch.insert(engine.store.scratch(device).lock().expect(POISONED));
            let worker = HostWorker::new(&engine.setup, &engine.store, device, pool, scratch);
            // The host's lane waits for events of a GPU and fetches activations from it.
            gpu.map_or(Ok(()), |gpu| gpu.accelerator().bind()).map(|()| LaneWorker::Host(Some(worker)))
        }
    };
    worker.and_then(|mut worker| run_passes(run, sync, index, advance, &mut worker))
}

fn run_passes<W: Word>(
    run: &SharedRun<'_>,
    sync: &LaneSync<W>,
    index: usize,
    advance: &dyn Fn(),
    worker: &mut LaneWorker<'_>,
) -> Result<(), kernels::KernelError> {
    let engine = run.engine;
    let lane = engine.lanes[index];
    // A device's lane spins, and so goes on sooner. A link's lane has no core of its own and
    // sleeps.
    let wait =
        |flag: &Flag<W>| if matches!(lane, Lane::Device(_)) { flag.wait() } else { flag.wait_asleep() };
    // The record gets all of its memory now, so that nothing is allocated between tasks.
    let [prefill, decode] = [Phase::Prefill, Phase::Decode].map(|phase| engine.tasks_of(phase, lane).len());
    run.record(index).tasks.reserve(prefill.max(decode));
    run.record(index).arrived = run.now();
    for number in 0.. {
        if !sync.next_pass(number, advance, wait) {
            break;
        }
        let Some(pass) = run.pass() else { break };
        let enqueued_whole = match worker {
            LaneWorker::Gpu(lane) => lane.begin(&pass)?,
            LaneWorker::Host(worker) => {
                worker.iter_mut().for_each(|worker| worker.begin(&pass));
                false
            }
        };
        let mut record = run.record(index);
        let tasks = if enqueued_whole { &[] } else { engine.tasks_of(pass.phase, lane) };
        for &id in tasks {
            if !wait_for_dependencies(run, sync, &pass, id, worker, wait)? {
                return Ok(());
            }
            match worker {
                LaneWorker::Gpu(lane) => lane.enqueue(id, &pass)?,
                LaneWorker::Host(worker) => {
                    let start = run.now();
                    perform(run, lane, id, &pass, worker.as_mut())?;
                    record.tasks.push(TaskInterval { start, end: run.now() });
                }
            }
            if engine.is_awaited(pass.phase, id) {
                sync.flag(id).set();
            }
        }
        if let LaneWorker::Gpu(lane) = worker {
            lane.finish(&pass, enqueued_whole, &mut record)?;
        }
        if lane == Lane::Device(engine.setup.placement.head[0].device(pass.phase)) {
            match worker {
                LaneWorker::Gpu(lane) => lane.append(&pass)?,
                LaneWorker::Host(_) => run.sample(&pass)?,
            }
        }
        record.arrived = run.now();
    }
    Ok(())
}

/// Waits for the tasks that task `id` depends on; `false` where the run has been aborted.
fn wait_for_dependencies<W: Word>(
    run: &SharedRun<'_>,
    sync: &LaneSync<W>,
    pass: &Pass,
    id: TaskId,
    worker: &LaneWorker<'_>,
    wait: impl Fn(&Flag<W>),
) -> Result<bool, kernels::KernelError> {
    let engine = run.engine;
    for &earlier in &engine.programs.program(pass.phase).tasks[id.0 as usize].after {
        wait(sync.flag(earlier));
        if sync.is_aborted() {
            return Ok(false);
        }
        // The flag of a GPU's task says that it is enqueued; its event, that it has ended.
        let events = engine.gpu.as_ref().and_then(|gpu| gpu.events(pass.phase, earlier));
        match (events, worker) {
            (None, _) => {}
            (Some(events), LaneWorker::Gpu(lane)) => lane.follow(&events.end)?,
            (Some(events), LaneWorker::Host(_)) => events.end.wait()?,
        }
    }
    Ok(!sync.is_aborted())
}

/// Carries out a task of the host.
fn perform(
    run: &SharedRun<'_>,
    lane: Lane,
    id: TaskId,
    pass: &Pass,
    worker: Option<&mut HostWorker<'_>>,
) -> Result<(), kernels::KernelError> {
    let engine = run.engine;
    let task = &engine.programs.program(pass.phase).tasks[id.0 as usize];
    let store = &engine.store;
    let part = task.micro_batch;
    let share = &pass.parts[part.index as usize];
    if pass.is_idle(task) {
        return Ok(());
    }
    match (&task.action, lane, worker) {
        (Action::Compute { operator, rows, source }, _, Some(worker)) => {
            let job = OperatorJob { layer: task.layer, part, operator: *operator, rows, source: *source };
            worker.run(job, &run.sequences);
        }
        (Action::Hop { from, link, .. }, ..) => {
            let (hop, model) = (
                Hop::from_task(task, lane).expect("it is one"),
                engine.setup.model.layer_or_ends(task.layer),
            );
            match &engine.gpu {
                Some(gpu) if gpu.device() == *from => {
                    gpu_transfer::fetch_hop(&mut *gpu.queue(lane)?, store, model, share, &hop)?;
                }
                _ => transfer::hop(store, engine.link(*link), model, share, &hop),
            }
        }
        (Action::FetchWeights { sublayer, rows, device, slot }, Lane::Link(link), _) => {
            let link = engine.link(link);
            transfer::fetch_weights(store, link, task.layer, *sublayer, rows.start, *device, *slot);
        }
        (Action::FetchKv { device, slot }, Lane::Link(link), _) => {
            let layer = task.layer.expect("attention is in a layer");
            transfer::fetch_kv(store, engine.link(link), layer, part, *device, *slot, share);
        }
        (Action::StoreKv { device, slot }, Lane::Link(link), _) => {
            let layer = task.layer.expect("attention is in a layer");
            transfer::store_kv(store, engine.link(link), layer, part, *device, *slot, share);
        }
        (action, lane, _) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::sampling::Sampler;
    use crate::batch::sampling::Sampling;
    use crate::batch::sequence::SlotSequence;
    use crate::run::engine::RunEngine;
    use crate::run::shared::TaskTimes;
    use crate::setup::run_setup::RunSetup;
    use crate::weights::checkpoint::Checkpoint;
    use crate::weights::random::make_random;
    use hwprofiles::{DType, DeviceId, Machine, MemoryId};
    use planner::{LayerPlacement, Placement, RunExtent, whole_slice};
    use scenarios::{Formats, Model, Step, WeightFormats};
    use std::time::Instant;

    #[test]
    fn a_lane_that_panics_ends_the_run_with_its_panic() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("model");
        make_random(&Model::preset("fulcrum-tiny").expect("a preset"), &folder, 1).expect("written");
        let checkpoint = Checkpoint::open(&folder).expect("it opens");
        let model = checkpoint.model().clone();
        let text = include_str!("../../../hwprofiles/data/example-loopback.yaml");
        let machine = Machine::from_yaml(text, "example-loopback.yaml").expect("the example is right");
        // Three lanes wait for each other: the CPU embeds, a link streams to the other device.
        let far = |sublayer| vec![whole_slice(&model, sublayer, MemoryId(0), DeviceId(1), DeviceId(1))];
        let layer = LayerPlacement::from_slices(model.kind(0), far);
        let layers = vec![layer; model.layers as usize];
        let placement = Placement { layers, ..Placement::uniform(&model, DeviceId(0), MemoryId(0)) };
        let formats =
            Formats { weights: WeightFormats::all(DType::F32), kv: DType::F32, activations: DType::F32 };
        let extent = RunExtent { batch: 1, context: 16, chunk: 4, step_tokens: 1 };
        let setup = RunSetup { machine, model, formats, placement, extent, plan: String::new() };
        // The locks of an engine cannot be used again after a panic, so each run has its own.
        let engine = || RunEngine::new(setup.clone(), &checkpoint).expect("it fits");
        // The second pass needs tokens that do not exist: a mistake that a caller cannot cause.
        let mut steps = [Step::prefill(1, 4), Step { past_tokens: 4, ..Step::prefill(1, 4) }].into_iter();
        let sequence = || {
            let sampler = Sampler::new(Sampling::Greedy).expect("greedy");
            vec![SlotSequence::new(vec![1; 6], sampler)]
        };
        let first = engine();
        let run = SharedRun::new(&first, sequence(), Instant::now(), TaskTimes::Each);
        let mut next = || steps.next().map(|step| Pass::uniform(&step, 1, 1));
        let played = catch_unwind(AssertUnwindSafe(|| run.play(|_, _: &Sender<()>| next(), |()| {})));
        let panic = played.expect_err("the panic arrives");
        let message = panic.downcast_ref::<String>().expect("a formatted message");
        assert!(message.contains("index out of bounds"), "{message}");
        // A panic of the scheduler arrives too.
        let second = engine();
        let run = SharedRun::new(&second, sequence(), Instant::now(), TaskTimes::Each);
        let lost = |_: &mut BetweenPasses<'_>, _: &Sender<()>| panic!("lost the score");
        let panic = catch_unwind(AssertUnwindSafe(|| run.play(lost, |()| {}))).expect_err("it arrives");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"lost the score"));
    }
}
