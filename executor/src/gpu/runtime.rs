//! The GPU that a run uses: its streams, and the events of its tasks.

use crate::batch::by_phase::ByPhase;
use crate::error::ExecutorError;
use crate::gpu::inputs::PassInputs;
use crate::setup::run_setup::RunSetup;
use hwprofiles::{DType, DeviceId, DeviceKind, MemoryId};
use kernels::cuda::calls::{GPU_MATRICES, MOST_KEY_VALUES, MOST_VALUES};
use kernels::cuda::{Accelerator, GpuEvent, GpuProgram, Queue};
use planner::{Lane, PhasePrograms, Task, TaskId};
use scenarios::{Mixer, Model, Phase, Recurrence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Events before and after a task on its stream.
pub(crate) struct TaskEvents {
    pub start: GpuEvent,
    pub end: GpuEvent,
}

/// The GPU of a placement that has one.
pub(crate) struct GpuRuntime {
    // Fields are dropped in this order: the accelerator last.
    /// By task: the events of those that are enqueued.
    events: ByPhase<Vec<Option<TaskEvents>>>,
    queues: BTreeMap<Lane, Mutex<Queue>>,
    inputs: Mutex<PassInputs>,
    /// Whether all tasks of decode are on the GPU's own lane.
    decodes_alone: bool,
    /// Passes so far whose kernels the host launched one by one; the GPU chose their tokens.
    launched: AtomicU64,
    /// Passes so far that were replayed as a graph.
    replayed: AtomicU64,
    device: DeviceId,
    memory: MemoryId,
    accelerator: Arc<Accelerator>,
}

impl GpuRuntime {
    /// Opens the GPU that `setup` uses and compiles its kernels, or takes the one that is `open`
    /// already. `None` where the setup uses no GPU.
    pub fn open(
        setup: &RunSetup,
        programs: &PhasePrograms,
        lanes: &[Lane],
        open: Option<&Arc<Accelerator>>,
    ) -> Result<Option<Self>, ExecutorError> {
        let Some(device) = gpu_device(setup, lanes) else { return Ok(None) };
        let absent = |absent: kernels::cuda::GpuUnavailable| ExecutorError::NoGpu {
            device: setup.machine.device(device).name.clone(),
            reason: absent.reason,
        };
        let accelerator = match open {
            Some(accelerator) => Arc::clone(accelerator),
            None => Arc::new(Accelerator::open().map_err(absent)?),
        };
        // A file may have more formats than its plan names: those are compiled at their first use.
        let formats = setup.formats.weights.distinct().filter(|dtype| GPU_MATRICES.contains(dtype));
        accelerator.prepare(&programs_of(&setup.model, &formats.collect::<Vec<_>>()))?;
        let memory = setup.machine.device(device).memory;
        // Every lane gets a queue: the GPU's own lanes, and the host's, which fetch from the GPU.
        let queue = |&lane: &Lane| Ok((lane, Mutex::new(Queue::new(&accelerator)?)));
        let queues = lanes.iter().map(queue).collect::<Result<_, ExecutorError>>()?;
        let events = |phase: Phase| {
            let events = |task: &Task| {
                let enqueued = works_for(setup, device, task.lane);
                let new =
                    || Ok::<_, ExecutorError>(TaskEvents { start: GpuEvent::new()?, end: GpuEvent::new()? });
                enqueued.then(new).transpose()
            };
            programs.program(phase).tasks.iter().map(events).collect::<Result<Vec<_>, _>>()
        };
        let events = ByPhase { prefill: events(Phase::Prefill)?, decode: events(Phase::Decode)? };
        let on_gpu = |task: &Task| task.lane == Lane::Device(device);
        Ok(Some(Self {
            events,
            queues,
            decodes_alone: programs.decode.tasks.iter().all(on_gpu),
            launched: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            inputs: Mutex::new(PassInputs::new(setup, &accelerator)?),
            device,
            memory,
            accelerator,
        }))
    }

    pub fn accelerator(&self) -> &Arc<Accelerator> {
        &self.accelerator
    }

    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The GPU's memory.
    pub fn memory(&self) -> MemoryId {
        self.memory
    }

    /// Whether tasks of `lane` are enqueued.
    pub fn works_for(&self, setup: &RunSetup, lane: Lane) -> bool {
        works_for(setup, self.device, lane)
    }

    /// Whether the GPU computes all of a pass of `phase` alone, so that passes of one shape are
    /// alike.
    pub fn is_alone(&self, phase: Phase) -> bool {
        self.decodes_alone && phase == Phase::Decode
    }

    /// Counts a pass that was enqueued.
    pub fn count_pass(&self, replayed: bool) {
        let counter = if replayed { &self.replayed } else { &self.launched };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Passes whose kernels were launched one by one.
    pub fn launched(&self) -> u64 {
        self.launched.load(Ordering::Relaxed)
    }

    /// Passes that were replayed.
    pub fn replayed(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed)
    }

    /// The events of a task, where it is enqueued.
    pub fn events(&self, phase: Phase, task: TaskId) -> Option<&TaskEvents> {
        self.events.get(phase)[task.0 as usize].as_ref()
    }

    /// The stream of a lane, for this thread.
    pub fn queue(&self, lane: Lane) -> Result<MutexGuard<'_, Queue>, kernels::KernelError> {
        self.accelerator.bind()?;
        Ok(self.queues[&lane].lock().expect("no lane has panicked"))
    }

    pub fn inputs(&self) -> MutexGuard<'_, PassInputs> {
        self.inputs.lock().expect("no lane has panicked")
    }
}

/// The programs of all layers' kernels.
fn programs_of(model: &Model, formats: &[DType]) -> Vec<GpuProgram> {
    let (mut head_dims, mut key_dims) = (BTreeSet::new(), BTreeSet::new());
    for shape in model.shapes() {
        match shape.mixer {
            Mixer::Attention => head_dims.insert(shape.head_dim as usize),
            Mixer::Recurrent(
                Recurrence::GatedDelta { key_dim, .. } | Recurrence::Mamba2 { state: key_dim, .. },
            ) => key_dims.insert(key_dim as usize),
            _ => false,
        };
    }
    // Layers with sizes that no kernel takes are on the host.
    let most = |sizes: BTreeSet<usize>, most: usize| sizes.into_iter().filter(|size| *size <= most).collect();
    let [head_dims, key_dims]: [Vec<usize>; 2] =
        [most(head_dims, MOST_VALUES), most(key_dims, MOST_KEY_VALUES)];
    GpuProgram::all(&head_dims, &key_dims, formats)
}

/// The GPU among the lanes' devices. The setup's check allows at most one.
fn gpu_device(setup: &RunSetup, lanes: &[Lane]) -> Option<DeviceId> {
    lanes.iter().find_map(|lane| match lane {
        Lane::Device(device) if setup.machine.device(*device).kind == DeviceKind::Gpu => Some(*device),
        _ => None,
    })
}

fn works_for(setup: &RunSetup, device: DeviceId, lane: Lane) -> bool {
    match lane {
        Lane::Device(other) => other == device,
        Lane::Link(link) => {
            let (link, memory) = (setup.machine.link(link), setup.machine.device(device).memory);
            link.from == memory || link.to == memory
        }
    }
}
