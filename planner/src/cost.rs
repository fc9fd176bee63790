//! The roofline: what one task of a program takes when it is alone, and what it loads meanwhile.
//!
//! t(operator, device) = launch + max(rate-limited time of the shape, bytes / bandwidth of the memory);
//! t(transfer, link) = α + bytes / β. A device of several ranks takes the time of one rank's share, and that of the
//! sum over them. Contention between tasks is the simulator's business: it needs
//! the bytes that a task moves through each shared memory, which stand beside the time.

use crate::program::{Action, Lane, Task};
use crate::tensor_parallel::{Shared, joining};
use hwprofiles::{Basis, Bytes, Device, DeviceId, Flop, LinkId, Machine, MemoryId, Missing, Seconds};
use scenarios::{Formats, Model, Operator, Shape, Step, Sublayer, Work};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Which term of the roofline is the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
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
pub struct Load {
    /// The memory whose bandwidth is drawn on.
    pub memory: MemoryId,
    /// How much.
    pub bytes: Bytes,
}

/// The price of one task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Its duration when nothing else runs, `overhead` included.
    pub alone: Seconds,
    /// The part of it that moves no bytes of memory: launch and sums over ranks, or the link's α.
    pub overhead: Seconds,
    /// What it moves through memories: at most two.
    pub loads: [Option<Load>; 2],
    /// Bytes over the link it uses, if any.
    pub carried: Option<(LinkId, Bytes)>,
    /// Its FLOP.
    pub flop: Flop,
    /// The largest term.
    pub bound: Bound,
    /// How well `alone` is known.
    pub basis: Basis,
}

impl Price {
    /// Of a task for no sequences: a batch may be smaller than the number of its parts.
    const NOTHING: Self = Self {
        alone: Seconds::ZERO,
        overhead: Seconds::ZERO,
        loads: [None; 2],
        carried: None,
        flop: Flop::ZERO,
        bound: Bound::Launch,
        basis: Basis::Measured,
    };

    /// Bytes that the task moves: over its link, or between its device and its memory.
    pub fn moved(&self) -> Bytes {
        match (self.carried, self.loads[0]) {
            (Some((_, bytes)), _) => bytes,
            (None, Some(load)) => load.bytes,
            (None, None) => Bytes::ZERO,
        }
    }
}

/// What prices depend on besides the task.
#[derive(Debug, Clone, Copy)]
pub struct Pricing<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The model.
    pub model: &'a Model,
    /// Its formats.
    pub formats: &'a Formats,
}

impl Pricing<'_> {
    /// The price of `task` in `step`, for the task's part of the batch.
    pub fn price(&self, task: &Task, step: &Step) -> Result<Price, Missing> {
        let step = &task.micro_batch.step(step);
        if step.batch == 0 {
            return Ok(Price::NOTHING);
        }
        let shared = |memory: MemoryId| Shared::within(self.machine, self.model, memory);
        let at_end = |link: LinkId| shared(self.machine.link(link).to);
        match (&task.action, task.lane) {
            (Action::Compute { operator, rows, .. }, Lane::Device(device)) => {
                self.compute(*operator, rows, device, step)
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
        operator: Operator,
        rows: &Range<u64>,
        device: DeviceId,
        step: &Step,
    ) -> Result<Price, Missing> {
        let whole = self.work(operator, rows, step);
        let shared = Shared::on(self.machine, self.model, device);
        // The ranks of a group work at the same time, each on its share.
        let work = match shared.ranks {
            1 => whole,
            _ => {
                let rows = shared.rows(operator.sublayer(), rows);
                Work::of(operator, &shared.share, self.formats, step, &rows)
            }
        };
        let device = self.machine.device(device);
        let memory = self.machine.bandwidth_of(device.memory);
        let bytes = (work.weights + work.kv_read + work.kv_written + work.activations) * shared.ranks;
        let streamed = bytes / self.machine.memory(memory).bandwidth.value;
        let rated = self.rated(device, operator, &work)?;
        let joining = self.joining(operator, rows, device, step);
        let launch = device.launch.value * f64::from(work.launches);
        let body = rated.time.max(streamed);
        // The memory term binds where it explains most of the time; a measured time includes both.
        let bound = match () {
            () if joining > launch + body => Bound::Link,
            () if launch > body => Bound::Launch,
            () if streamed.get() >= 0.5 * body.get() => Bound::Memory,
            () => Bound::Compute,
        };
        Ok(Price {
            alone: launch + body + joining,
            overhead: launch + joining,
            loads: [Some(Load { memory, bytes }), None],
            carried: None,
            flop: whole.flop,
            bound,
            basis: rated.basis,
        })
    }

    /// What a device of several ranks takes to put together what they computed; nothing for one.
    fn joining(&self, operator: Operator, rows: &Range<u64>, device: &Device, step: &Step) -> Seconds {
        let tokens = if operator.sublayer() == Sublayer::Head { step.batch } else { step.rows() };
        let columns = operator.output_columns(self.model, rows);
        joining(device.ranks.as_ref(), operator, self.formats, tokens, &columns)
    }

    /// The time at the device's measured rate for the shape.
    fn rated(
        &self,
        device: &Device,
        operator: Operator,
        work: &Work,
    ) -> Result<hwprofiles::Estimate, Missing> {
        match work.shape {
            Shape::Gemm { m, n, k } => {
                device.gemm_time(self.formats.weights.of(operator.sublayer()), m, n, k)
            }
            Shape::Attention(shape) => device.attention_time(self.formats.kv, &shape),
            Shape::Elementwise => {
                Ok(device.elementwise_time(work.activations + work.weights + work.kv_written))
            }
        }
    }

    /// A transfer: α + bytes / β, loading the memories at both ends.
    fn transfer(&self, link: LinkId, bytes: Bytes) -> Price {
        let ends = self.machine.link(link);
        let alone = ends.time(bytes);
        let load = |memory| Load { memory: self.machine.bandwidth_of(memory), bytes };
        let (from, to) = (load(ends.from), load(ends.to));
        // Both ends in one physical memory: it is read and written.
        let loads = if from.memory == to.memory {
            [Some(Load { memory: from.memory, bytes: bytes + bytes }), None]
        } else {
            [Some(from), Some(to)]
        };
        Price {
            alone,
            overhead: if bytes == Bytes::ZERO { Seconds::ZERO } else { ends.latency.value },
            loads,
            carried: Some((link, bytes)),
            flop: Flop::ZERO,
            bound: Bound::Link,
            basis: Basis::Measured,
        }
    }
}
