//! A training step whose state is in the host's memory, as Horizon-LM and MegaTrain make it: f32
//! master weights and Adam's two moments in DRAM, weights streamed to the accelerator for the
//! forward pass and again for the backward pass, gradients streamed back, and the update computed
//! by the host's cores.
//!
//! The accelerator keeps the input of each layer and computes the rest of the layer again in the
//! backward pass. Two slots hold layers of weights, and two hold gradients on either side of the
//! link: a layer is fetched while the one before it computes, and updated while the next ones go
//! backward. The host looks up the embedding. A step ends when all parameters are updated.
//!
//! A matrix product of 2NT FLOP is made four times: forward, again, and backward for its input and
//! for its weights; the head, which keeps its result, three times. So a step is 4 × the layers'
//! forward FLOP + 3 × the head's.

use crate::cost::{CostModel, TaskCost};
use crate::error::PlannerError;
use crate::memory::MemoryUsage;
use crate::memory::overfilled;
use crate::program::MicroBatch;
use crate::program::TrainingAction;
use crate::program::{Action, Lane, LowerError, OperandSource, Program, Task, TaskId, dependencies};
use crate::training::task_costs::{STATES, TrainingCosts};
use hwprofiles::{Bytes, DType, DeviceId, DeviceKind, LinkId, Machine, MemoryId};
use scenarios::{ActivationBuffer, Model, Operator, Phase, Sublayer, Training};

/// The number of slots for layers of weights, for gradients on the accelerator, and for gradients
/// on the host.
const SLOTS: usize = 2;

/// A training step, lowered and priced.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingStep {
    /// Its tasks.
    pub program: Program,
    /// The cost of each task.
    pub prices: Vec<TaskCost>,
    /// Bytes in each memory, by index.
    pub memory: Vec<MemoryUsage>,
}

/// The devices, memories and links of the step.
#[derive(Debug, Clone, Copy)]
struct Site {
    host: DeviceId,
    gpu: DeviceId,
    down: LinkId,
    up: LinkId,
}

impl TrainingStep {
    /// The step of `training` on the machine's one accelerator and its host.
    ///
    /// # Errors
    /// What is not supported (a mixture of experts, several accelerators, weights of fewer than 16
    /// bits), a rate that was not measured, or a memory that is too small.
    pub fn new(cost_model: CostModel<'_>, training: &Training) -> Result<Self, PlannerError> {
        let CostModel { machine, model, formats } = cost_model;
        let site = Site::from_machine(machine)?;
        let unsupported =
            |what: String, instead: &str| Err(PlannerError::Untrained { what, instead: instead.to_owned() });
        if model.experts.is_some() {
            return unsupported(format!("{}, a mixture of experts", model.name), "a dense model");
        }
        if let Some(coarse) =
            formats.weights.distinct().find(|dtype| !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16))
        {
            return unsupported(format!("weights in {coarse}"), "bf16, f16 or f32");
        }
        let prices = TrainingCosts { cost_model, training: *training, host: site.host };
        let mut lowering = Lowering {
            site,
            model,
            prices,
            tasks: vec![],
            priced: vec![],
            fetched: vec![],
            stored: vec![],
            updated: vec![],
        };
        lowering.step()?;
        let program = Program { phase: Phase::Prefill, tasks: lowering.tasks };
        let step = Self { program, prices: lowering.priced, memory: memory(cost_model, training, site) };
        match overfilled(machine, &step.memory) {
            None => Ok(step),
            Some((memory, needed)) => Err(PlannerError::TooLarge {
                memory: memory.name.clone(),
                needed,
                capacity: memory.capacity.value,
            }),
        }
    }
}

impl Site {
    fn from_machine(machine: &Machine) -> Result<Self, PlannerError> {
        let host = machine.device_ids().find(|&id| machine.device(id).kind == DeviceKind::Cpu);
        let others: Vec<_> = machine.device_ids().filter(|&id| Some(id) != host).collect();
        let (Some(host), [gpu]) = (host, &others[..]) else {
            let what = format!("'{}' with its {} devices", machine.name, machine.devices.len());
            return Err(PlannerError::Untrained { what, instead: "a CPU and one accelerator".to_owned() });
        };
        let ranks = machine.device(*gpu).ranks();
        if ranks > 1 {
            let what = format!("{ranks} accelerators as one");
            return Err(PlannerError::Untrained { what, instead: "a CPU and one accelerator".to_owned() });
        }
        let link = |from: MemoryId, to: MemoryId| {
            let name = |memory: MemoryId| machine.memory(memory).name.clone();
            let what = "a training step".to_owned();
            machine.link_between(from, to).ok_or_else(|| LowerError::NoLink {
                from: name(from),
                to: name(to),
                what,
            })
        };
        let (dram, hbm) = (machine.device(host).memory, machine.device(*gpu).memory);
        Ok(Self { host, gpu: *gpu, down: link(dram, hbm)?, up: link(hbm, dram)? })
    }
}

struct Lowering<'a> {
    site: Site,
    model: &'a Model,
    prices: TrainingCosts<'a>,
    tasks: Vec<Task>,
    priced: Vec<TaskCost>,
    /// The last task of each visit of a layer, after which its slot is free.
    fetched: Vec<TaskId>,
    /// For each layer that has gone backward: the stores of its gradients and the updates after
    /// them.
    stored: Vec<Vec<TaskId>>,
    updated: Vec<Vec<TaskId>>,
}

impl Lowering<'_> {
    fn step(&mut self) -> Result<(), PlannerError> {
        let Site { host, gpu, down, up } = self.site;
        let layers = self.model.layers as u32;
        let embedded = self.compute(None, Operator::Embed, host)?;
        self.hop(host, gpu, down, vec![embedded])?;
        for layer in 0..layers {
            let slot = self.fetch(layer)?;
            let last = self.forward(layer, &slot)?;
            self.fetched.push(last);
        }
        let head = self.head()?;
        for layer in (0..layers).rev() {
            let slot = self.fetch(layer)?;
            self.forward(layer, &slot)?;
            self.backward(layer)?;
        }
        // The input of the first layer has a gradient too.
        let last =
            TaskId(self.tasks.iter().rposition(|task| task.lane == Lane::Device(gpu)).unwrap_or(0) as u32);
        let brought = self.hop(gpu, host, up, vec![last])?;
        // Where the embedding is tied to the head, both gradients are needed.
        self.update(None, Sublayer::Embed, vec![brought, head])?;
        Ok(())
    }

    /// Fetches a layer's matrices; returns the fetches by sublayer.
    fn fetch(&mut self, layer: u32) -> Result<Vec<(Sublayer, TaskId)>, PlannerError> {
        let visit = self.fetched.len();
        let free: Vec<_> = visit.checked_sub(SLOTS).map(|before| self.fetched[before]).into_iter().collect();
        let matrices: Vec<_> = matrices(self.model).collect();
        let fetch = |(sublayer, rows)| {
            let action =
                Action::FetchWeights { sublayer, rows: 0..rows, device: self.site.gpu, slot: visit % SLOTS };
            Ok((sublayer, self.push(Lane::Link(self.site.down), Some(layer), action, free.clone())?))
        };
        matrices.into_iter().map(fetch).collect()
    }

    /// A layer's forward pass; returns its last task.
    fn forward(&mut self, layer: u32, slot: &[(Sublayer, TaskId)]) -> Result<TaskId, PlannerError> {
        let mut last = TaskId(0);
        for &sublayer in self.model.kind(0).sublayers() {
            for &operator in sublayer.operators(self.model) {
                let fetched = slot.iter().filter(|(of, _)| operator.is_matmul() && *of == sublayer);
                let after = fetched.map(|(_, task)| *task).collect();
                last = self.computed(Some(layer), operator, self.site.gpu, after)?;
            }
        }
        Ok(last)
    }

    /// A layer's backward pass, the stores of its gradients, and its updates.
    fn backward(&mut self, layer: u32) -> Result<(), PlannerError> {
        let visit = self.stored.len();
        let before =
            |visits: &[Vec<TaskId>]| visit.checked_sub(SLOTS).map_or(vec![], |slot| visits[slot].clone());
        let (gpu_free, host_free) = (before(&self.stored), before(&self.updated));
        let (mut stores, mut updates) = (vec![], vec![]);
        let mut last = TaskId(0);
        for &sublayer in self.model.kind(0).sublayers().iter().rev() {
            for &operator in sublayer.operators(self.model).iter().rev() {
                last = self.back(Some(layer), operator, gpu_free.clone())?;
            }
            if sublayer.matrix(self.model).is_some() {
                let after = host_free.iter().copied().chain([last]).collect();
                let store = self.store(Some(layer), sublayer, after)?;
                stores.push(store);
                updates.push(self.update(Some(layer), sublayer, vec![store])?);
            }
        }
        self.fetched.push(last);
        self.stored.push(stores);
        self.updated.push(updates);
        Ok(())
    }

    /// The head. Its weights are fetched once, since it is not computed again; returns the store of
    /// its gradients.
    fn head(&mut self) -> Result<TaskId, PlannerError> {
        let action = Action::FetchWeights {
            sublayer: Sublayer::Head,
            rows: 0..self.model.vocab,
            device: self.site.gpu,
            slot: SLOTS,
        };
        let fetched = self.push(Lane::Link(self.site.down), None, action, vec![])?;
        let mut last = TaskId(0);
        for &operator in Sublayer::Head.operators(self.model) {
            self.computed(None, operator, self.site.gpu, vec![fetched])?;
        }
        for &operator in Sublayer::Head.operators(self.model).iter().rev() {
            last = self.back(None, operator, vec![])?;
        }
        let store = self.store(None, Sublayer::Head, vec![last])?;
        self.update(None, Sublayer::Head, vec![store])?;
        Ok(store)
    }

    fn compute(
        &mut self,
        layer: Option<u32>,
        operator: Operator,
        device: DeviceId,
    ) -> Result<TaskId, PlannerError> {
        self.computed(layer, operator, device, vec![])
    }

    fn computed(
        &mut self,
        layer: Option<u32>,
        operator: Operator,
        device: DeviceId,
        after: Vec<TaskId>,
    ) -> Result<TaskId, PlannerError> {
        let rows = match operator.sublayer().matrix(self.model) {
            Some((rows, _)) if operator.is_matmul() => 0..rows,
            _ => 0..0,
        };
        let action = Action::Compute { operator, rows, source: OperandSource::Resident };
        self.push(Lane::Device(device), layer, action, after)
    }

    fn back(
        &mut self,
        layer: Option<u32>,
        operator: Operator,
        after: Vec<TaskId>,
    ) -> Result<TaskId, PlannerError> {
        let action = Action::Train(TrainingAction::Backward(operator));
        self.push(Lane::Device(self.site.gpu), layer, action, after)
    }

    fn store(
        &mut self,
        layer: Option<u32>,
        sublayer: Sublayer,
        after: Vec<TaskId>,
    ) -> Result<TaskId, PlannerError> {
        let action = Action::Train(TrainingAction::StoreGradients(sublayer));
        self.push(Lane::Link(self.site.up), layer, action, after)
    }

    fn update(
        &mut self,
        layer: Option<u32>,
        sublayer: Sublayer,
        after: Vec<TaskId>,
    ) -> Result<TaskId, PlannerError> {
        let action = Action::Train(TrainingAction::Update(sublayer));
        self.push(Lane::Device(self.site.host), layer, action, after)
    }

    /// Moves the residual of all tokens from one device to the other.
    fn hop(
        &mut self,
        from: DeviceId,
        to: DeviceId,
        link: LinkId,
        after: Vec<TaskId>,
    ) -> Result<TaskId, PlannerError> {
        let columns = 0..ActivationBuffer::Residual.columns(self.model);
        // Within a layer a hop covers all rows.
        self.push(
            Lane::Device(to),
            Some(0),
            Action::Hop { buffer: ActivationBuffer::Residual, columns, from, link },
            after,
        )
    }

    fn push(
        &mut self,
        lane: Lane,
        layer: Option<u32>,
        action: Action,
        after: Vec<TaskId>,
    ) -> Result<TaskId, PlannerError> {
        let id = TaskId(self.tasks.len() as u32);
        let after = dependencies(&self.tasks, lane, after.into());
        let kind = layer.map(|layer| self.model.kind(u64::from(layer)));
        let task = Task { lane, layer, kind, micro_batch: MicroBatch::WHOLE, action, after };
        self.priced.push(self.prices.price(&task)?);
        self.tasks.push(task);
        Ok(id)
    }
}

/// The sublayers of a dense layer that have a matrix, with their rows.
fn matrices(model: &Model) -> impl Iterator<Item = (Sublayer, u64)> + use<'_> {
    let sublayers = model.kind(0).sublayers().iter();
    sublayers.filter_map(|&sublayer| Some((sublayer, sublayer.matrix(model)?.0)))
}

/// Exact bytes of each memory. The host holds 12 bytes of state and one weight in its format for
/// each parameter, and gradients of two layers and the head. The accelerator holds two layers of
/// weights and two of gradients, both for the head, the input of each layer, one layer's
/// activations with their gradients, and the logits of one sequence with theirs.
fn memory(cost_model: CostModel<'_>, training: &Training, site: Site) -> Vec<MemoryUsage> {
    let CostModel { machine, model, formats } = cost_model;
    let rows = training.sequences * training.tokens;
    let layer = model.layer_bytes(model.kind(0), formats);
    let head = model.sublayer_bytes(Sublayer::Head, formats);
    let slots = layer * SLOTS as u64 + head;
    let bytes = |buffer: ActivationBuffer, rows: u64| buffer.bytes(formats, rows, buffer.columns(model));
    let operators = model.kind(0).sublayers().iter().flat_map(|sublayer| sublayer.operators(model));
    let inside: Bytes = operators.map(|operator| bytes(operator.writes(), rows)).sum();
    let mut memory = vec![MemoryUsage::default(); machine.memories.len()];
    memory[machine.device(site.host).memory.0] = MemoryUsage {
        weights: DType::F32.bytes(model.parameters()) * STATES + model.weight_bytes(formats),
        activations: bytes(ActivationBuffer::Residual, rows) * 2,
        staging: slots,
        ..MemoryUsage::default()
    };
    memory[machine.device(site.gpu).memory.0] = MemoryUsage {
        activations: bytes(ActivationBuffer::Residual, rows) * model.layers
            + (inside + bytes(ActivationBuffer::Logits, training.tokens)) * 2,
        staging: slots * 2,
        ..MemoryUsage::default()
    };
    memory
}
