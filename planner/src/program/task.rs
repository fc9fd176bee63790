//! A step as a program: tasks on lanes, with dependencies.
//!
//! All users of a placement share this form. The simulator runs the program with modelled times,
//! the executor runs it on real devices, and the two are compared by the task's index.
//!
//! A *lane* is an in-order queue: one for each device, and one for each link that carries transfers
//! during computation. Links on one wire share a queue ([`Lane::queue`]). Within a lane, tasks run
//! in the order of their index. Across lanes, a task waits for the tasks in `after`. These
//! dependencies also prevent early writes: a prefetch into a staging slot that is still in use, or
//! a new activation over one that another device has yet to copy. A hop of an activation runs in
//! the lane of the device that needs it, because that device has nothing else to do meanwhile, and
//! a hand-over to a copying thread costs more than the copy of a few kilobytes.

use crate::program::micro_batch::MicroBatch;

use hwprofiles::{DeviceId, LinkId, Machine, MemoryId};
use scenarios::{ActivationBuffer, LayerKind, Operator, Phase, Sublayer};
use smallvec::SmallVec;
use std::ops::Range;

/// Index of a task in its program; also its order within its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// An in-order queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Computation of the device, and hops of activations to it.
    Device(DeviceId),
    /// Prefetches of weights and transfers of KV.
    Link(LinkId),
}

/// Where a device reads a slice of a matrix or a KV cache.
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
    /// How `device` reads `home` without a copy. `None` if the bytes must be fetched.
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
        /// The operator.
        operator: Operator,
        /// Output rows of the matrix. Empty without a matrix.
        rows: Range<u64>,
        /// Where the matrix is, or for `rotate` and `attention` the KV cache.
        source: OperandSource,
    },
    /// Copies rows of a matrix from its home into a staging slot, over the lane's link.
    FetchWeights {
        /// The sublayer of the matrix.
        sublayer: Sublayer,
        /// The rows.
        rows: Range<u64>,
        /// The device that needs them.
        device: DeviceId,
        /// Index of the slot.
        slot: usize,
    },
    /// Copies the layer's past K and V from their home into a staging slot, over the lane's link.
    FetchKv {
        /// The device that needs them.
        device: DeviceId,
        /// Index of the slot.
        slot: usize,
    },
    /// Copies the layer's new K and V from a staging slot to their home, over the lane's link.
    StoreKv {
        /// The device that computed them.
        device: DeviceId,
        /// Index of the slot.
        slot: usize,
    },
    /// An action of a training step.
    Train(TrainingAction),
    /// Copies columns of an activation over `link` to the memory of the lane's device. In the head,
    /// where `layer` is `None`, it copies only the row of each sequence's last token.
    Hop {
        /// The activation.
        buffer: ActivationBuffer,
        /// The columns.
        columns: Range<u64>,
        /// The device that has them.
        from: DeviceId,
        /// The link.
        link: LinkId,
    },
}

/// Actions of a training step besides forward computation and fetches of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrainingAction {
    /// Computes the gradients of an operator's input and matrix from the gradient of its output.
    Backward(Operator),
    /// Copies the gradients of a matrix to the host's memory, over the lane's link.
    StoreGradients(Sublayer),
    /// Reads the gradients and the state of a sublayer's parameters, and writes the state and the
    /// weights.
    Update(Sublayer),
}

/// Tasks that another one waits for: mostly few, which then need no memory of their own.
pub type TaskIds = SmallVec<[TaskId; 4]>;

/// One unit of work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Task {
    /// The queue that it runs in.
    pub lane: Lane,
    /// The layer, or `None` for embed and head.
    pub layer: Option<u32>,
    /// The kind of that layer.
    pub kind: Option<LayerKind>,
    /// The micro-batch that it works on, or the whole batch if it serves all micro-batches.
    pub micro_batch: MicroBatch,
    /// The work.
    pub action: Action,
    /// Tasks of other lanes that must end first. All have smaller indices.
    pub after: TaskIds,
}

impl Lane {
    /// The lane in whose queue its tasks wait: a link's tasks wait for all links on the same wire.
    pub fn queue(self, machine: &Machine) -> Self {
        match self {
            Lane::Device(_) => self,
            Lane::Link(link) => Lane::Link(machine.wire(link)),
        }
    }

    /// Name of its device or link.
    pub fn name(self, machine: &Machine) -> &str {
        match self {
            Lane::Device(device) => &machine.device(device).name,
            Lane::Link(link) => &machine.link(link).name,
        }
    }
}

impl Action {
    /// The action in the first staging slot: which slot it uses does not change its price.
    pub fn without_slot(&self) -> Self {
        let mut action = self.clone();
        match &mut action {
            Self::Compute { source: OperandSource::Staged(slot), .. }
            | Self::FetchWeights { slot, .. }
            | Self::FetchKv { slot, .. }
            | Self::StoreKv { slot, .. } => *slot = 0,
            _ => {}
        }
        action
    }
}

impl Task {
    /// Name in a trace: the operator's, or `fetch qkv`, `fetch kv`, `store kv`, `hop normed`.
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
    /// The tasks. The index of a task is its [`TaskId`].
    pub tasks: Vec<Task>,
}

/// A placement that cannot run on its machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// Bytes must move between two memories without a link.
    #[error(
        "no link from memory '{from}' to memory '{to}', which {what} needs; add one to the machine's links"
    )]
    NoLink {
        /// Name of the source memory.
        from: String,
        /// Name of the destination memory.
        to: String,
        /// What needs the link.
        what: String,
    },
}

impl Program {
    /// Whether one device computes all of a decode step and replays it as a graph, so that its host
    /// issues no kernel.
    pub fn is_replayed(&self, machine: &Machine) -> bool {
        let Some(Lane::Device(device)) = self.tasks.first().map(|task| task.lane) else { return false };
        self.phase == Phase::Decode
            && machine.device(device).details.replays_alone
            && self.tasks.iter().all(|task| task.lane == Lane::Device(device))
    }

    /// The lanes of its tasks, sorted.
    pub fn lanes(&self) -> Vec<Lane> {
        let mut lanes: Vec<_> = self.tasks.iter().map(|task| task.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }
}

/// The tasks of `after` that a task of `lane` must name, each once. Tasks of its own lane precede
/// it anyway.
pub(crate) fn dependencies(tasks: &[Task], lane: Lane, mut after: TaskIds) -> TaskIds {
    after.retain(|earlier| tasks[earlier.0 as usize].lane != lane);
    after.sort_unstable();
    after.dedup();
    after
}
