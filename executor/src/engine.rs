//! What lanes run on: devices' teams of threads, links, and the store, ready.

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::gpu::Board;
use crate::setup::Setup;
use crate::store::Store;
use hwprofiles::{DeviceId, DeviceKind, LinkId};
use kernels::cuda::Accelerator;
use kernels::{Link, Pool, affinity};
use planner::{Lane, Placement, Program, Programs, TaskId};
use scenarios::{Phase, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A placement on its devices.
pub(crate) struct Engine {
    pub setup: Setup,
    pub programs: Programs,
    /// The GPU, where there is one.
    pub board: Option<Board>,
    pub store: Store,
    /// The lanes of both programs.
    pub lanes: Vec<Lane>,
    prefill: Queues,
    decode: Queues,
    pools: BTreeMap<DeviceId, Pool>,
    links: Vec<Link>,
}

/// A program by lanes.
struct Queues {
    tasks: BTreeMap<Lane, Vec<TaskId>>,
    /// By task: whether another lane waits for it.
    awaited: Vec<bool>,
}

impl Queues {
    fn new(program: &Program) -> Self {
        let (mut tasks, mut awaited) = (BTreeMap::<_, Vec<_>>::new(), vec![false; program.tasks.len()]);
        for (index, task) in program.tasks.iter().enumerate() {
            tasks.entry(task.lane).or_default().push(TaskId(index as u32));
            task.after.iter().for_each(|earlier| awaited[earlier.0 as usize] = true);
        }
        Self { tasks, awaited }
    }
}

impl Engine {
    /// Checks the setup, starts the devices' threads, allocates and loads.
    pub fn new(setup: Setup, checkpoint: &Checkpoint) -> Result<Self, Error> {
        let mut engine = Self::empty(setup, checkpoint, None)?;
        engine.store = Store::load(&engine.setup, &engine.programs, checkpoint, engine.board.as_ref())?;
        Ok(engine)
    }

    /// Goes over to another placement: what has the same home there stays, KV caches with what is in them.
    ///
    /// # Errors
    /// [`Error::Refused`] for other micro-batches, between which KV caches are divided, and where a memory is too small:
    /// then nothing has changed. Those of reading files.
    pub fn follow(&mut self, placement: Placement, checkpoint: &Checkpoint) -> Result<(), Error> {
        let parts = self.setup.placement.pipelining.micro_batches;
        if placement.pipelining.micro_batches != parts {
            let found = placement.pipelining.micro_batches;
            return Err(Error::refused(
                "placement.pipelining.micro_batches",
                found,
                format!("{parts}, as before"),
            ));
        }
        let gpu = self.board.as_ref().map(Board::gpu);
        let mut next = Self::empty(Setup { placement, ..self.setup.clone() }, checkpoint, gpu)?;
        if next.board.is_some() != self.board.is_some() {
            let wanted = "a GPU's memory is there from the beginning or not at all";
            return Err(Error::refused("placement", "with a GPU on one side only", wanted));
        }
        let Setup { machine, model, formats, placement, extent, .. } = &next.setup;
        let usage = planner::usage(machine, model, formats, placement, &next.programs, extent);
        for (memory, usage) in machine.memories.iter().zip(usage) {
            if usage.total() > memory.capacity.value {
                let wanted = format!("memory '{}' has {}", memory.name, memory.capacity.value);
                return Err(Error::refused("placement", usage.total(), wanted));
            }
        }
        let store = std::mem::take(&mut self.store);
        let before = Some(&self.setup.placement);
        next.store = store.follow(before, &next.setup, &next.programs, checkpoint, next.board.as_ref())?;
        *self = next;
        Ok(())
    }

    /// All but the store; with the `gpu` that is open already.
    fn empty(setup: Setup, checkpoint: &Checkpoint, gpu: Option<&Arc<Accelerator>>) -> Result<Self, Error> {
        setup.check_model(checkpoint.model())?;
        let programs = setup.programs()?;
        // What the trace will need is known before anything runs. One new token attends as in decode, two as in prefill.
        for step in [Step::prefill(1, 1), Step::prefill(1, 2), Step::decode(1, 1)] {
            for task in &programs.of(step.phase).tasks {
                setup.pricing().price(task, &step)?;
            }
        }
        let mut lanes = [programs.prefill.lanes(), programs.decode.lanes()].concat();
        lanes.sort_unstable();
        lanes.dedup();
        let mut pools = BTreeMap::new();
        for lane in &lanes {
            if let Lane::Device(device) = *lane
                && setup.machine.device(device).kind != DeviceKind::Gpu
            {
                pools.insert(device, pool(&setup, device)?);
            }
        }
        let link = |link: &hwprofiles::Link| Link::new(link.latency.value, link.bandwidth.value);
        Ok(Self {
            board: Board::open(&setup, &programs, &lanes, gpu)?,
            store: Store::default(),
            prefill: Queues::new(&programs.prefill),
            decode: Queues::new(&programs.decode),
            links: setup.machine.links.iter().map(link).collect(),
            setup,
            programs,
            lanes,
            pools,
        })
    }

    fn queues(&self, phase: Phase) -> &Queues {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }

    /// The tasks of a lane, in order; none where it has nothing to do in `phase`.
    pub fn tasks_of(&self, phase: Phase, lane: Lane) -> &[TaskId] {
        self.queues(phase).tasks.get(&lane).map_or(&[], |tasks| tasks)
    }

    /// Whether a task of another lane waits for this one.
    pub fn is_awaited(&self, phase: Phase, task: TaskId) -> bool {
        self.queues(phase).awaited[task.0 as usize]
    }

    pub fn pool(&self, device: DeviceId) -> &Pool {
        &self.pools[&device]
    }

    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.0]
    }
}

/// The device's team, on its cores. Cores that this process may not use are replaced by those it may, shared in turn:
/// slower than the machine file says, but the same result.
fn pool(setup: &Setup, device: DeviceId) -> Result<Pool, Error> {
    let device = setup.machine.device(device);
    let available = affinity::available_cores();
    let ours = |core: usize| if available.contains(&core) { core } else { available[core % available.len()] };
    let cores: Vec<_> = device.cores.iter().map(|&core| ours(core)).collect();
    if cores != device.cores {
        tracing::warn!(
            "device '{}' should run on cores {:?}; this process may use {available:?}, so it shares {cores:?}",
            device.name,
            device.cores
        );
    }
    let measured = device.details.crossover.iter();
    let pool = measured.fold(Pool::new(&cores)?, |pool, (&dtype, rows)| {
        pool.with_crossover(dtype, usize::try_from(rows.value).unwrap_or(usize::MAX))
    });
    if let Some(measured) = device.details.kernels.as_ref().filter(|name| *name != pool.path().name()) {
        tracing::warn!(
            "device '{}' was measured with {measured} kernels and runs {} ones: measure it again, or use --kernels {measured}",
            device.name,
            pool.path()
        );
    }
    Ok(pool)
}
