//! A GPU at a run's disposal: its streams, and the moments of its tasks.

use super::inputs::Inputs;
use crate::error::Error;
use crate::setup::Setup;
use hwprofiles::{DeviceId, DeviceKind, MemoryId};
use kernels::cuda::{Accelerator, Event, Program, Queue};
use planner::{Lane, Programs, Task, TaskId};
use scenarios::Phase;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// When a task's work begins and ends on its stream.
pub(crate) struct Moments {
    pub start: Event,
    pub end: Event,
}

/// The GPU of a placement that has one.
pub(crate) struct Board {
    // Dropped in this order: the GPU last.
    /// Of both phases' tasks that are enqueued.
    moments: [Vec<Option<Moments>>; 2],
    queues: BTreeMap<Lane, Mutex<Queue>>,
    inputs: Mutex<Inputs>,
    /// Whether all of decode is on its own lane.
    decodes_alone: bool,
    /// Passes so far whose tokens it chose: launched call by call, and replayed.
    passes: [AtomicU64; 2],
    device: DeviceId,
    memory: MemoryId,
    gpu: Arc<Accelerator>,
}

impl Board {
    /// The GPU that `setup` uses, ready, and the one that is `open` already if there is; `None` where it uses none. Its
    /// kernels are compiled here.
    pub fn open(
        setup: &Setup,
        programs: &Programs,
        lanes: &[Lane],
        open: Option<&Arc<Accelerator>>,
    ) -> Result<Option<Self>, Error> {
        let Some(device) = device(setup, lanes) else { return Ok(None) };
        let absent = |absent: kernels::cuda::Absent| Error::NoGpu {
            device: setup.machine.device(device).name.clone(),
            reason: absent.reason,
        };
        let gpu = match open {
            Some(gpu) => Arc::clone(gpu),
            None => Arc::new(Accelerator::open().map_err(absent)?),
        };
        gpu.prepare(&Program::all(setup.model.head_dim as usize))?;
        let memory = setup.machine.device(device).memory;
        // Every lane that meets the GPU: those it works for, and the host's devices, which fetch from it.
        let queue = |&lane: &Lane| Ok((lane, Mutex::new(Queue::new(&gpu)?)));
        let queues = lanes.iter().map(queue).collect::<Result<_, Error>>()?;
        let works = |lane| works_for(setup, device, lane);
        let moments = |phase: Phase| {
            let moments = |lane| {
                works(lane).then(|| Ok::<_, Error>(Moments { start: Event::new()?, end: Event::new()? }))
            };
            programs
                .of(phase)
                .tasks
                .iter()
                .map(|task| moments(task.lane).transpose())
                .collect::<Result<Vec<_>, _>>()
        };
        let moments = [moments(Phase::Prefill)?, moments(Phase::Decode)?];
        let mine = |task: &Task| task.lane == Lane::Device(device);
        Ok(Some(Self {
            moments,
            queues,
            decodes_alone: programs.decode.tasks.iter().all(mine),
            passes: Default::default(),
            inputs: Mutex::new(Inputs::new(setup, &gpu)?),
            device,
            memory,
            gpu,
        }))
    }

    pub fn gpu(&self) -> &Arc<Accelerator> {
        &self.gpu
    }

    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Its memory.
    pub fn memory(&self) -> MemoryId {
        self.memory
    }

    /// Whether tasks of `lane` are enqueued.
    pub fn works_for(&self, setup: &Setup, lane: Lane) -> bool {
        works_for(setup, self.device, lane)
    }

    /// Whether it does all of a pass of `phase`, the same from one to the next.
    pub fn is_alone(&self, phase: Phase) -> bool {
        self.decodes_alone && phase == Phase::Decode
    }

    /// Counts a pass that was enqueued.
    pub fn count(&self, replayed: bool) {
        self.passes[usize::from(replayed)].fetch_add(1, Ordering::Relaxed);
    }

    /// Passes whose tokens it chose: launched call by call, and replayed.
    pub fn passes(&self) -> [u64; 2] {
        self.passes.each_ref().map(|passes| passes.load(Ordering::Relaxed))
    }

    /// When a task happens, where it is enqueued.
    pub fn moments(&self, phase: Phase, task: TaskId) -> Option<&Moments> {
        self.moments[phase as usize][task.0 as usize].as_ref()
    }

    /// The stream of a lane, for this thread.
    pub fn queue(&self, lane: Lane) -> Result<MutexGuard<'_, Queue>, kernels::Error> {
        self.gpu.bind()?;
        Ok(self.queues[&lane].lock().expect("no lane has panicked"))
    }

    pub fn inputs(&self) -> MutexGuard<'_, Inputs> {
        self.inputs.lock().expect("no lane has panicked")
    }
}

/// The GPU among the lanes' devices: [`super::check`] has seen to it that there are not two.
pub(super) fn device(setup: &Setup, lanes: &[Lane]) -> Option<DeviceId> {
    lanes.iter().find_map(|lane| match lane {
        Lane::Device(device) if setup.machine.device(*device).kind == DeviceKind::Gpu => Some(*device),
        _ => None,
    })
}

fn works_for(setup: &Setup, device: DeviceId, lane: Lane) -> bool {
    match lane {
        Lane::Device(other) => other == device,
        Lane::Link(link) => {
            let (link, memory) = (setup.machine.link(link), setup.machine.device(device).memory);
            link.from == memory || link.to == memory
        }
    }
}
