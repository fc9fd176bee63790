//! A step as a program: tasks on lanes, with dependencies.
//!
//! This is the one lowering of a placement. The simulator runs the program with modelled times, the
//! executor runs the same program on real devices, and comparing the two is a join on the task's index.
//!
//! A *lane* is an in-order queue: one per device, and one per link for transfers that overlap with
//! computation; links over one wire queue for it ([`Lane::queue`]). Within a lane, tasks run in the order of their
//! index; across lanes a task waits for those in `after`. Everything that must not happen too early is such a dependency: a prefetch that
//! would overwrite a staging slot still in use, or an activation overwritten while another device has
//! yet to copy it. Hops of activations ride in the lane of the device that needs them: it has nothing
//! else to do meanwhile, and a hand-over to a copying thread would cost more than a few kilobytes do.

use crate::program::micro_batch::MicroBatch;

use hwprofiles::{DeviceId, LinkId, Machine, MemoryId};
use scenarios::{Buffer, Operator, Phase, Sublayer};
use std::ops::Range;

/// Index of a task in its program; also its order within its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// An in-order queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// What the device computes, and the activations that it fetches itself.
    Device(DeviceId),
    /// Prefetches of weights and transfers of KV.
    Link(LinkId),
}

/// Where a matrix part, or a KV cache, is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperandSource {
    /// The device's own memory.
    Resident,
    /// Another memory, which the device reads in place.
    InPlace(MemoryId),
    /// A staging slot of the device, filled by a fetch.
    Staged(usize),
}

impl OperandSource {
    /// How `device` reads what is in `home` where it is; `None` where it has to be fetched.
    pub(crate) fn in_place(machine: &Machine, home: MemoryId, device: DeviceId) -> Option<Self> {
        match machine.reads_in_place(device, home) {
            _ if machine.device(device).memory == home => Some(OperandSource::Resident),
            true => Some(OperandSource::InPlace(home)),
            false => None,
        }
    }
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Runs an operator on the lane's device.
    Compute {
        /// Which.
        operator: Operator,
        /// Output rows of the matrix; empty where there is none.
        rows: Range<u64>,
        /// Where the matrix, or for `rotate` and `attention` the KV cache, is.
        source: OperandSource,
    },
    /// Copies rows of a matrix from its home into a staging slot, over the lane's link.
    FetchWeights {
        /// Whose matrix.
        sublayer: Sublayer,
        /// Which rows.
        rows: Range<u64>,
        /// For which device.
        device: DeviceId,
        /// Into which slot.
        slot: usize,
    },
    /// Copies the layer's past K and V from their home into a staging slot, over the lane's link.
    FetchKv {
        /// For which device.
        device: DeviceId,
        /// Into which slot.
        slot: usize,
    },
    /// Copies the layer's new K and V from a staging slot to their home, over the lane's link.
    StoreKv {
        /// From which device.
        device: DeviceId,
        /// From which slot.
        slot: usize,
    },
    /// Something of a training step.
    Train(TrainingAction),
    /// Copies columns of an activation over `link` to the memory of the lane's device. In the head, where `layer`
    /// is `None`, only the row of each sequence's last token.
    Hop {
        /// Which activation.
        buffer: Buffer,
        /// Which columns.
        columns: Range<u64>,
        /// From which device.
        from: DeviceId,
        /// Over which link.
        link: LinkId,
    },
}

/// What a training step does besides computing forward and fetching weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrainingAction {
    /// The gradients of an operator's input and of its matrix, from that of its output.
    Backward(Operator),
    /// Copies the gradients of a matrix to the host's memory, over the lane's link.
    StoreGradients(Sublayer),
    /// Reads the gradients and the state of a sublayer's parameters, writes the state and the weights.
    Update(Sublayer),
}

/// One unit of work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Task {
    /// Its queue.
    pub lane: Lane,
    /// The layer, or `None` for embed and head.
    pub layer: Option<u32>,
    /// Which part of the batch it is for; what all parts wait for is for the whole.
    pub micro_batch: MicroBatch,
    /// What it does.
    pub action: Action,
    /// Tasks of other lanes that must have ended; all have smaller indices.
    pub after: Vec<TaskId>,
}

impl Lane {
    /// The lane in which its tasks queue: that of its link's wire, which other links' tasks may be in too.
    pub fn queue(self, machine: &Machine) -> Self {
        match self {
            Lane::Device(_) => self,
            Lane::Link(link) => Lane::Link(machine.wire(link)),
        }
    }

    /// The name of its device or link.
    pub fn name(self, machine: &Machine) -> &str {
        match self {
            Lane::Device(device) => &machine.device(device).name,
            Lane::Link(link) => &machine.link(link).name,
        }
    }
}

impl Task {
    /// Its name in a trace: the operator's, or `fetch qkv`, `fetch kv`, `store kv`, `hop normed`.
    pub fn name(&self) -> String {
        match &self.action {
            Action::Compute { operator, .. } => operator.name().to_owned(),
            Action::FetchWeights { sublayer, .. } => format!("fetch {sublayer}"),
            Action::FetchKv { .. } => "fetch kv".to_owned(),
            Action::StoreKv { .. } => "store kv".to_owned(),
            Action::Train(TrainingAction::Backward(operator)) => format!("backward {operator}"),
            Action::Train(TrainingAction::StoreGradients(sublayer)) => format!("store gradients {sublayer}"),
            Action::Train(TrainingAction::Update(sublayer)) => format!("update {sublayer}"),
            Action::Hop { buffer, .. } => format!("hop {}", buffer.name()),
        }
    }
}

/// A step's tasks in the order of issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Prefill or decode.
    pub phase: Phase,
    /// The tasks; a task's index is its [`TaskId`].
    pub tasks: Vec<Task>,
}

/// A placement that cannot run on its machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// Bytes must move where no link goes.
    #[error(
        "no link from memory '{from}' to memory '{to}', which {what} needs; add one to the machine's links"
    )]
    NoLink {
        /// Source memory.
        from: String,
        /// Destination memory.
        to: String,
        /// Who needs it.
        what: String,
    },
}

impl Program {
    /// The lanes in use, in order.
    pub fn lanes(&self) -> Vec<Lane> {
        let mut lanes: Vec<_> = self.tasks.iter().map(|task| task.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }
}

/// Those of `after` that a task of `lane` waits for, each once: its own lane's come before it anyway.
pub(crate) fn dependencies(tasks: &[Task], lane: Lane, mut after: Vec<TaskId>) -> Vec<TaskId> {
    after.retain(|earlier| tasks[earlier.0 as usize].lane != lane);
    after.sort_unstable();
    after.dedup();
    after
}
