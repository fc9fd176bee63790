//! What lanes run on: the devices' teams of threads, the links, and the store.

use crate::batch::by_phase::ByPhase;
use crate::error::ExecutorError;
use crate::gpu::runtime::GpuRuntime;
use crate::setup::run_setup::RunSetup;
use crate::store::buffers::Store;
use crate::weights::checkpoint::Checkpoint;
use hwprofiles::{DeviceId, DeviceKind, LinkId};
use kernels::cuda::Accelerator;
use kernels::{Pool, RateLimitedLink, affinity};
use planner::{Lane, PhasePrograms, Placement, Program, TaskId};
use scenarios::{Phase, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A placement on its devices, ready to run.
pub(crate) struct RunEngine {
    pub setup: RunSetup,
    pub programs: PhasePrograms,
    /// The GPU, where there is one.
    pub gpu: Option<GpuRuntime>,
    pub store: Store,
    /// The lanes of both programs.
    pub lanes: Vec<Lane>,
    queues: ByPhase<LaneQueues>,
    pools: BTreeMap<DeviceId, Pool>,
    links: Vec<RateLimitedLink>,
}

/// The tasks of a program by lane.
struct LaneQueues {
    tasks: BTreeMap<Lane, Vec<TaskId>>,
    /// By task: whether another lane waits for it.
    awaited: Vec<bool>,
}

impl LaneQueues {
    fn new(program: &Program) -> Self {
        let (mut tasks, mut awaited) = (BTreeMap::<_, Vec<_>>::new(), vec![false; program.tasks.len()]);
        for (index, task) in program.tasks.iter().enumerate() {
            tasks.entry(task.lane).or_default().push(TaskId(index as u32));
            task.after.iter().for_each(|earlier| awaited[earlier.0 as usize] = true);
        }
        Self { tasks, awaited }
    }
}

impl RunEngine {
    /// Checks the setup, starts the devices' threads, allocates everything and loads the weights.
    pub fn new(setup: RunSetup, checkpoint: &Checkpoint) -> Result<Self, ExecutorError> {
        let mut engine = Self::without_store(setup, checkpoint, None)?;
        engine.store = Store::load(&engine.setup, &engine.programs, checkpoint, engine.gpu.as_ref())?;
        Ok(engine)
    }

    /// Changes to another placement. What keeps its home stays, KV caches with their contents.
    ///
    /// # Errors
    /// [`ExecutorError::Refused`] where the number of micro-batches differs, since KV caches are
    /// divided among them, and where a memory is too small: then nothing has changed. Errors of
    /// reading files.
    pub fn replace_placement(
        &mut self,
        placement: Placement,
        checkpoint: &Checkpoint,
    ) -> Result<(), ExecutorError> {
        let parts = self.setup.placement.pipelining.micro_batches;
        if placement.pipelining.micro_batches != parts {
            let found = placement.pipelining.micro_batches;
            return Err(ExecutorError::refused(
                "placement.pipelining.micro_batches",
                found,
                format!("{parts}, as before"),
            ));
        }
        let accelerator = self.gpu.as_ref().map(GpuRuntime::accelerator);
        let mut next =
            Self::without_store(RunSetup { placement, ..self.setup.clone() }, checkpoint, accelerator)?;
        if next.gpu.is_some() != self.gpu.is_some() {
            let wanted = "a GPU's memory is there from the beginning or not at all";
            return Err(ExecutorError::refused("placement", "with a GPU on one side only", wanted));
        }
        let RunSetup { machine, model, formats, placement, extent, .. } = &next.setup;
        let usage = planner::usage(machine, model, formats, placement, &next.programs, extent);
        for (memory, usage) in machine.memories.iter().zip(usage) {
            if usage.total() > memory.capacity.value {
                let wanted = format!("memory '{}' has {}", memory.name, memory.capacity.value);
                return Err(ExecutorError::refused("placement", usage.total(), wanted));
            }
        }
        let store = std::mem::take(&mut self.store);
        let before = Some(&self.setup.placement);
        next.store = store.rebuild(before, &next.setup, &next.programs, checkpoint, next.gpu.as_ref())?;
        *self = next;
        Ok(())
    }

    /// Everything but the store, with the accelerator that is `open` already.
    fn without_store(
        setup: RunSetup,
        checkpoint: &Checkpoint,
        open: Option<&Arc<Accelerator>>,
    ) -> Result<Self, ExecutorError> {
        setup.check_model(checkpoint.model())?;
        let programs = setup.programs()?;
        // Rates that the trace needs are looked up before anything runs. A prefill of one token has
        // decode's rates of attention and one of two tokens prefill's, so both are looked up.
        for step in [Step::prefill(1, 1), Step::prefill(1, 2), Step::decode(1, 1)] {
            for task in &programs.program(step.phase).tasks {
                setup.cost_model().task_cost(task, &step)?;
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
        let link = |link: &hwprofiles::Link| RateLimitedLink::new(link.latency.value, link.bandwidth.value);
        Ok(Self {
            gpu: GpuRuntime::open(&setup, &programs, &lanes, open)?,
            store: Store::default(),
            queues: ByPhase {
                prefill: LaneQueues::new(&programs.prefill),
                decode: LaneQueues::new(&programs.decode),
            },
            links: setup.machine.links.iter().map(link).collect(),
            setup,
            programs,
            lanes,
            pools,
        })
    }

    /// The tasks of a lane in `phase`, in order.
    pub fn tasks_of(&self, phase: Phase, lane: Lane) -> &[TaskId] {
        self.queues.get(phase).tasks.get(&lane).map_or(&[], |tasks| tasks)
    }

    /// Whether a task of another lane waits for this one.
    pub fn is_awaited(&self, phase: Phase, task: TaskId) -> bool {
        self.queues.get(phase).awaited[task.0 as usize]
    }

    pub fn pool(&self, device: DeviceId) -> &Pool {
        &self.pools[&device]
    }

    pub fn link(&self, link: LinkId) -> &RateLimitedLink {
        &self.links[link.0]
    }
}

/// The device's team, on its cores. Cores that this process may not use are replaced by cores that
/// it may use, shared in turn: slower than the machine file says, but with the same result.
fn pool(setup: &RunSetup, device: DeviceId) -> Result<Pool, ExecutorError> {
    let device = setup.machine.device(device);
    let available = affinity::available_cores();
    let ours = |core: usize| if available.contains(&core) { core } else { available[core % available.len()] };
    let cores: Vec<_> = device.cores.iter().map(|&core| ours(core)).collect();
    if cores != device.cores {
        tracing::info!(
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
