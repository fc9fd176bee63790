//! The roofline of a program: lower bounds of its time.
//!
//! A step takes at least as long as its longest chain of tasks, as the tasks of its busiest lane,
//! as the bytes of its busiest memory, and as the host needs to issue all kernels of a device.
//! Contention only adds to that; the simulator models it.

use crate::cost::cost_model::CostModel;
use crate::cost::sketch::{Sketch, StepProbe};
use crate::cost::step_overlap::StepOverlap;
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::program::{BatchSteps, Lane, PhaseTimes, Program};
use hwprofiles::{Bytes, DeviceId, LinkId, Machine, MemoryId, MissingRate, Seconds};
use rustc_hash::FxHashMap;
use scenarios::{Phase, Step};
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

/// Lower bounds of the time of one step, or of several steps one after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roofline {
    /// The longest chain of tasks. Each task starts when its lane is free and the tasks before it
    /// have ended; wake-ups of waiting devices count.
    pub critical_path: Seconds,
    /// Sum of each lane's tasks.
    pub lanes: BTreeMap<Lane, Seconds>,
    /// Bytes ÷ bandwidth of each memory that has a bandwidth of its own.
    pub memories: BTreeMap<MemoryId, Seconds>,
    /// Time in which the host issues all kernels of each device that has an issue time.
    pub launches: BTreeMap<DeviceId, Seconds>,
}

/// The resource that sets the largest bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// Tasks that wait for each other.
    Chain,
    /// One lane's queue.
    Lane(Lane),
    /// One memory's bandwidth.
    Memory(MemoryId),
    /// The host that issues a device's kernels.
    Launches(DeviceId),
}

impl Roofline {
    /// The roofline of `step` of `program`.
    ///
    /// # Errors
    /// [`MissingRate`] if a rate was not measured.
    pub fn new(cost_model: &CostModel<'_>, program: &Program, step: &Step) -> Result<Self, MissingRate> {
        let mut roofline = Self::default();
        let mut moved: BTreeMap<MemoryId, Bytes> = BTreeMap::new();
        let mut ends: Vec<Seconds> = Vec::with_capacity(program.tasks.len());
        let mut free: BTreeMap<Lane, Seconds> = BTreeMap::new();
        // Layers of a kind are alike: what does the same on the same lane costs the same.
        let mut known = FxHashMap::default();
        let replayed = program.is_replayed(cost_model.machine);
        for task in &program.tasks {
            let price = match known.entry((task.lane, task.kind, task.micro_batch, &task.action)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => *new.insert(cost_model.task_cost(task, step)?),
            };
            let ready = task.after.iter().map(|id| ends[id.0 as usize]);
            let ready = ready.fold(Seconds::ZERO, Seconds::max);
            let queue = task.lane.queue(cost_model.machine);
            let free = free.entry(queue).or_default();
            let start = match task.lane {
                Lane::Device(device) if ready > *free => ready + cost_model.machine.device(device).sync.value,
                _ => ready.max(*free),
            };
            *free = start + price.alone;
            ends.push(*free);
            *roofline.lanes.entry(queue).or_default() += price.alone;
            if let (Lane::Device(device), true) = (task.lane, !replayed && price.issue > Seconds::ZERO) {
                *roofline.launches.entry(device).or_default() += price.issue;
            }
            for load in price.loads.into_iter().flatten() {
                *moved.entry(load.memory).or_default() += load.bytes;
            }
        }
        roofline.critical_path = ends.into_iter().fold(Seconds::ZERO, Seconds::max);
        let rate = |memory: MemoryId| cost_model.machine.memory(memory).bandwidth.value;
        roofline.memories = moved.into_iter().map(|(memory, bytes)| (memory, bytes / rate(memory))).collect();
        Ok(roofline)
    }

    /// The bounds of a run of `placement`: the sum over the prefill steps, and a decode step in the
    /// middle of the output.
    ///
    /// # Errors
    /// A rate that was not measured, or a link that does not exist.
    pub(crate) fn run_bounds(
        cost_model: &CostModel<'_>,
        placement: &Placement,
        batch_steps: &BatchSteps,
    ) -> Result<PhaseTimes, PlannerError> {
        let mut probe = Bounds(cost_model);
        let mut bound = |phase: Phase| -> Result<Seconds, PlannerError> {
            let sketch = Sketch::new(cost_model, &placement.in_phase(phase))?;
            let mut total = Seconds::ZERO;
            let overlap = StepOverlap::new(cost_model, sketch.program());
            for steps in batch_steps.kinds(phase) {
                let mut sums = sketch.sum(&steps, &mut probe)?;
                // The last step counts too, so this saves more than the simulator: still a bound.
                if let Some(overlap) = &overlap {
                    let busy: Vec<_> = overlap.devices().iter().map(|device| sums[1 + device.0]).collect();
                    sums[0] -= overlap.saved(sums[0], &busy);
                }
                total += Seconds::new(sums.into_iter().fold(0.0, f64::max));
            }
            Ok(total)
        };
        let (ttft, decode) = (bound(Phase::Prefill)?, bound(Phase::Decode)?);
        Ok(PhaseTimes { ttft, tpot: (batch_steps.decodes > 0).then_some(decode) })
    }

    /// The bounds of several steps of `program` that may follow each other through several GPUs.
    pub(crate) fn overlapped(mut self, cost_model: &CostModel<'_>, program: &Program) -> Self {
        if let Some(overlap) = StepOverlap::new(cost_model, program) {
            let busy = overlap.busy(self.lanes.iter().map(|(&lane, time)| (lane, time.get())));
            let saved = overlap.saved(self.critical_path.get(), &busy);
            self.critical_path = Seconds::new(self.critical_path.get() - saved);
        }
        self
    }

    /// All bounds as a list of fixed order: chain, devices, links, memories, launches.
    pub(crate) fn numbers(&self, machine: &Machine) -> Vec<f64> {
        let devices = machine.device_ids().map(Lane::Device);
        let links = (0..machine.links.len()).map(|link| Lane::Link(LinkId(link)));
        let lanes = devices.chain(links).map(|lane| self.lanes.get(&lane));
        let memories = machine.memory_ids().map(|memory| self.memories.get(&memory));
        let launches = machine.device_ids().map(|device| self.launches.get(&device));
        let times = std::iter::once(Some(&self.critical_path)).chain(lanes).chain(memories).chain(launches);
        times.map(|time| time.map_or(0.0, |time| time.get())).collect()
    }

    /// The largest bound and its resource.
    pub fn bound(&self) -> (Seconds, Binding) {
        let lanes = self.lanes.iter().map(|(&lane, &time)| (time, Binding::Lane(lane)));
        let memories = self.memories.iter().map(|(&memory, &time)| (time, Binding::Memory(memory)));
        let launches = self.launches.iter().map(|(&device, &time)| (time, Binding::Launches(device)));
        let chain = (self.critical_path, Binding::Chain);
        // The first of equal bounds wins: a chain that keeps one lane busy throughout is a chain.
        lanes
            .chain(memories)
            .chain(launches)
            .fold(chain, |most, next| if next.0 > most.0 { next } else { most })
    }

    /// The bounds of this and then `other`.
    pub fn then(mut self, other: &Self) -> Self {
        self.critical_path += other.critical_path;
        for (&lane, &time) in &other.lanes {
            *self.lanes.entry(lane).or_default() += time;
        }
        for (&memory, &time) in &other.memories {
            *self.memories.entry(memory).or_default() += time;
        }
        for (&device, &time) in &other.launches {
            *self.launches.entry(device).or_default() += time;
        }
        self
    }
}

/// Measures all bounds of a step for a sketch.
struct Bounds<'a>(&'a CostModel<'a>);

impl StepProbe for Bounds<'_> {
    type Program = Program;
    type Error = MissingRate;

    fn step(&mut self, program: &Program, step: &Step) -> Result<Vec<f64>, MissingRate> {
        Ok(Roofline::new(self.0, program, step)?.numbers(self.0.machine))
    }
}
