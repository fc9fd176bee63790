//! The roofline: what one task of a program takes when it is alone, and what it loads meanwhile.
//!
//! t(operator, device) = launch + max(rate-limited time of the shape, bytes / bandwidth of the memory);
//! t(transfer, link) = α + bytes / β. A device of several ranks takes the time of one rank's share, and that of the
//! sum over them. What the host takes to issue a kernel ahead of the device stands beside it. Contention between tasks is the simulator's business: it needs
//! the bytes that a task moves through each shared memory, which stand beside the time.

use crate::placement::{ModelShare, joining};
use crate::program::{Action, Lane, OperandSource, Task};
use hwprofiles::{
    Basis, Bytes, Device, DeviceId, Estimate, Flop, LinkId, Machine, MemoryId, Missing, Ratio, Seconds,
};
use scenarios::{Formats, Model, Operator, Shape, Step, Sublayer, Traffic, Work};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Which term of the roofline is the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostBound {
    /// FLOP ÷ rate.
    Compute,
    /// Bytes ÷ the memory's bandwidth.
    Memory,
    /// A transfer.
    Link,
    /// Starting the operator.
    Launch,
}

/// Bytes through a memory whose bandwidth is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BandwidthUse {
    /// The memory whose bandwidth is drawn on.
    pub memory: MemoryId,
    /// How much.
    pub bytes: Bytes,
}

/// The price of one task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskCost {
    /// Its duration when nothing else runs, `overhead` included.
    pub alone: Seconds,
    /// The part of it that moves no bytes of memory: launch and sums over ranks, or the link's α.
    pub overhead: Seconds,
    /// What the host takes to launch it, before it can begin but while the device runs what was launched before.
    pub issue: Seconds,
    /// What it moves through memories, each once: of a transfer at most two striped ones at one end, and the other end.
    pub loads: [Option<BandwidthUse>; 3],
    /// Bytes over the link it uses, if any.
    pub carried: Option<(LinkId, Bytes)>,
    /// Its FLOP.
    pub flop: Flop,
    /// The largest term.
    pub bound: CostBound,
    /// How well `alone` is known.
    pub basis: Basis,
}

impl TaskCost {
    /// Of a task for no sequences: a batch may be smaller than the number of its parts.
    const NOTHING: Self = Self {
        alone: Seconds::ZERO,
        overhead: Seconds::ZERO,
        issue: Seconds::ZERO,
        loads: [None; 3],
        carried: None,
        flop: Flop::ZERO,
        bound: CostBound::Launch,
        basis: Basis::Measured,
    };

    /// Bytes that the task moves: over its link, or between its device and its memory.
    pub fn moved(&self) -> Bytes {
        match self.carried {
            Some((_, bytes)) => bytes,
            None => self.loads.into_iter().flatten().map(|load| load.bytes).sum(),
        }
    }
}

/// What prices depend on besides the task.
#[derive(Debug, Clone, Copy)]
pub struct CostModel<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The model.
    pub model: &'a Model,
    /// Its formats.
    pub formats: &'a Formats,
}

impl CostModel<'_> {
    /// The price of `task` in `step`, for the task's part of the batch.
    pub fn task_cost(&self, task: &Task, step: &Step) -> Result<TaskCost, Missing> {
        self.routed_task_cost(task, step, None)
    }

    /// [`CostModel::price`] where so much is asked of the experts that the task computes; in the mean over what tokens
    /// choose where nothing is said. Other tasks cost what they do anyway.
    pub fn routed_task_cost(
        &self,
        task: &Task,
        step: &Step,
        traffic: Option<Traffic>,
    ) -> Result<TaskCost, Missing> {
        let step = &task.micro_batch.step(step);
        if step.batch == 0 {
            return Ok(TaskCost::NOTHING);
        }
        let shared = |memory: MemoryId| ModelShare::in_memory(self.machine, self.model, memory);
        let at_end = |link: LinkId| shared(self.machine.link(link).to);
        match (&task.action, task.lane) {
            (Action::Compute { operator, rows, source }, Lane::Device(device)) => {
                let home = match *source {
                    OperandSource::InPlace(memory) => memory,
                    OperandSource::Resident | OperandSource::Staged(_) => self.machine.device(device).memory,
                };
                self.compute((*operator, rows, traffic), home, device, step)
            }
            (Action::FetchWeights { sublayer, rows, .. }, Lane::Link(link)) => {
                Ok(self.transfer(link, at_end(link).matrix_bytes(*sublayer, self.formats, rows)))
            }
            (Action::FetchKv { .. }, Lane::Link(link)) => {
                Ok(self.transfer(link, at_end(link).kv_bytes(self.formats, step.batch, step.past_tokens)))
            }
            (Action::StoreKv { .. }, Lane::Link(link)) => {
                Ok(self.transfer(link, at_end(link).kv_bytes(self.formats, step.batch, step.new_tokens)))
            }
            (Action::Hop { buffer, columns, link, .. }, _) => {
                let rows = if task.layer.is_none() { step.batch } else { step.rows() };
                let columns = columns.end - columns.start;
                Ok(self.transfer(*link, at_end(*link).buffer_bytes(*buffer, self.formats, rows, columns)))
            }
            (action, lane) => unreachable!("the lowering puts no {action:?} on {lane:?}"),
        }
    }

    /// The work of a compute task.
    pub fn work(&self, operator: Operator, rows: &Range<u64>, step: &Step) -> Work {
        Work::of(operator, self.model, self.formats, step, rows)
    }

    fn compute(
        &self,
        (operator, rows, traffic): (Operator, &Range<u64>, Option<Traffic>),
        home: MemoryId,
        device: DeviceId,
        step: &Step,
    ) -> Result<TaskCost, Missing> {
        let whole = Work::routed(operator, self.model, self.formats, step, rows, traffic);
        let shared = ModelShare::on_device(self.machine, self.model, device);
        // The ranks of a group work at the same time, each on its share.
        let work = match shared.ranks {
            1 => whole,
            _ => {
                let rows = shared.rows(operator.sublayer(), rows);
                Work::routed(operator, &shared.share, self.formats, step, &rows, traffic)
            }
        };
        let device = self.machine.device(device);
        let kept = (work.weights + work.kv_read + work.kv_written) * shared.ranks;
        let loads = self.loads([(home, kept), (device.memory, work.activations * shared.ranks)]);
        let time = |load: BandwidthUse| load.bytes / self.machine.memory(load.memory).bandwidth.value;
        let streamed = loads.into_iter().flatten().map(time).fold(Seconds::ZERO, Seconds::max);
        let rated = self.rated(device, operator, home, &work)?;
        let joining = self.joining(operator, rows, device, step);
        let launch = device.launch.value * f64::from(work.launches);
        let issue = device.issue.as_ref().map_or(Seconds::ZERO, |issue| issue.value);
        let issue = issue * f64::from(work.launches);
        let body = rated.time.max(streamed);
        // The memory term binds where it explains most of the time; a measured time includes both.
        let bound = match () {
            () if joining > launch + body => CostBound::Link,
            () if launch > body || issue > launch + body + joining => CostBound::Launch,
            () if streamed.get() >= 0.5 * body.get() => CostBound::Memory,
            () => CostBound::Compute,
        };
        Ok(TaskCost {
            alone: launch + body + joining,
            overhead: launch + joining,
            issue,
            loads,
            carried: None,
            flop: whole.flop,
            bound,
            basis: rated.basis,
        })
    }

    /// What an operator on `device` takes at the measured rate of its shape, with what it reads in the device's own memory.
    pub(crate) fn estimate(
        &self,
        operator: Operator,
        rows: &Range<u64>,
        device: DeviceId,
        step: &Step,
    ) -> Result<Estimate, Missing> {
        let shared = ModelShare::on_device(self.machine, self.model, device);
        let rows = shared.rows(operator.sublayer(), rows);
        let work = Work::routed(operator, &shared.share, self.formats, step, &rows, None);
        let device = self.machine.device(device);
        self.rated(device, operator, device.memory, &work)
    }

    /// What a device of several ranks takes to put together what they computed; nothing for one.
    fn joining(&self, operator: Operator, rows: &Range<u64>, device: &Device, step: &Step) -> Seconds {
        let tokens = if operator.sublayer() == Sublayer::Head { step.batch } else { step.rows() };
        let columns = operator.output_columns(self.model, rows);
        joining(device.ranks.as_ref(), operator, self.formats, tokens, &columns)
    }

    /// The time at the device's measured rate for the shape, which is that of what is in its own memory.
    fn rated(
        &self,
        device: &Device,
        operator: Operator,
        home: MemoryId,
        work: &Work,
    ) -> Result<Estimate, Missing> {
        let weights = self.formats.weights.of(operator.sublayer());
        let rate = |memory: MemoryId| self.machine.memory(memory).bandwidth.value.get();
        let faster = Ratio::new(rate(home) / rate(device.memory)).filter(|_| home != device.memory);
        match (work.shape, faster) {
            (Shape::Gemm { m, n, k }, None) => device.gemm_time(weights, m, n, k),
            (Shape::Gemm { m, n, k }, Some(faster)) => device.gemm_time_from(faster, weights, m, n, k),
            (Shape::Attention(shape), None) => device.attention_time(self.formats.kv, &shape),
            (Shape::Attention(shape), Some(faster)) => {
                device.attention_time_from(faster, self.formats.kv, &shape)
            }
            (Shape::Elementwise, _) => {
                Ok(device.elementwise_time(work.activations + work.weights + work.kv_written))
            }
        }
    }

    /// What bytes kept in these memories draw through those whose bandwidth it is.
    pub(crate) fn loads(&self, kept: [(MemoryId, Bytes); 2]) -> [Option<BandwidthUse>; 3] {
        let mut loads: [Option<BandwidthUse>; 3] = [None; 3];
        for (memory, bytes) in kept.into_iter().flat_map(|(memory, bytes)| self.machine.spread(memory, bytes))
        {
            let memory = self.machine.bandwidth_of(memory);
            let same = |load: &&mut Option<BandwidthUse>| load.is_none_or(|load| load.memory == memory);
            let load = loads.iter_mut().find(same).expect("no link joins two striped memories");
            let before = load.map_or(Bytes::ZERO, |load| load.bytes);
            *load = Some(BandwidthUse { memory, bytes: before + bytes });
        }
        loads
    }

    /// A transfer: α + bytes / β, loading the memories at both ends.
    pub(crate) fn transfer(&self, link: LinkId, bytes: Bytes) -> TaskCost {
        let ends = self.machine.link(link);
        let alone = ends.time(bytes);
        // Where both ends are in one physical memory, it is read and written.
        let loads = self.loads([(ends.from, bytes), (ends.to, bytes)]);
        TaskCost {
            alone,
            overhead: if bytes == Bytes::ZERO { Seconds::ZERO } else { ends.latency.value },
            issue: Seconds::ZERO,
            loads,
            carried: Some((link, bytes)),
            flop: Flop::ZERO,
            bound: CostBound::Link,
            basis: Basis::Measured,
        }
    }
}
