//! The cost of each way to place a sublayer. The search only adds up these costs.

use crate::cost::cost_model::CostModel;
use crate::cost::serial_chain::{StagePart, SublayerStage};
use crate::cost::standalone_tasks::{compute, fetches};
use crate::memory::{gpu_scratch, is_gpu, operator_scratch, rotation_table_bytes, shared_cache_bytes};
use crate::placement::{Home, IdenticalGpus, ModelShare, Pipelining, Slice};
use crate::program::{ALL_BUFFERS, Action, BatchSteps, Lane, MicroBatch, OperandSource, RunExtent, Task};
use hwprofiles::{Bytes, DeviceId, LinkId, Machine, MissingRate};
use scenarios::{ActivationBuffer, LayerKind, Model, Phase, Step, Sublayer};

const BUFFERS: u32 = ALL_BUFFERS.len() as u32;
const ATTENDS: u32 = 2 * BUFFERS;
const STREAMS_KV: u32 = ATTENDS + 1;
const STREAMS: u32 = STREAMS_KV + 1;

/// The most sizes that a device's staging slots, and as many that its scratch, may have, so that
/// all items have a bit.
const MOST_SIZES: usize = ((u128::BITS - STREAMS) / 2) as usize;

/// What a layer needs of a device: the items that it needs once for any number of layers (a bit for
/// each), and the sublayers of the layer whose norms and biases it holds (a bit for each
/// [`Sublayer`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceNeeds {
    items: u128,
    vectors: u32,
}

impl DeviceNeeds {
    fn item(bit: u32) -> Self {
        Self { items: 1 << bit, vectors: 0 }
    }

    fn vectors(sublayer: Sublayer) -> Self {
        Self { items: 0, vectors: 1 << sublayer as u32 }
    }

    /// What either needs.
    pub fn union(self, other: Self) -> Self {
        Self { items: self.items | other.items, vectors: self.vectors | other.vectors }
    }

    /// Whether `other` needs all that this does.
    pub fn is_subset_of(self, other: Self) -> bool {
        self.items & !other.items == 0 && self.vectors & !other.vectors == 0
    }

    /// The item bits.
    pub fn items(self) -> u128 {
        self.items
    }

    /// Whether the norms and biases of `sublayer` are held.
    pub fn holds(self, sublayer: Sublayer) -> bool {
        self.vectors >> sublayer as u32 & 1 == 1
    }
}

/// A sublayer of the layers of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PricedSublayer {
    /// `None` for embed and head.
    pub kind: Option<LayerKind>,
    pub sublayer: Sublayer,
}

impl PricedSublayer {
    /// Those of embed and head, then those of each kind of layer.
    pub fn all(model: &Model) -> Vec<Self> {
        let ends = [Sublayer::Embed, Sublayer::Head].map(|sublayer| Self { kind: None, sublayer });
        let of_kind = |kind: LayerKind| {
            kind.sublayers().iter().map(move |&sublayer| Self { kind: Some(kind), sublayer })
        };
        ends.into_iter().chain(model.kinds().flat_map(|(kind, _)| of_kind(kind))).collect()
    }
}

/// Cost of one sublayer with one home and lead device, in one phase.
#[derive(Debug, Clone)]
pub(crate) struct SublayerCost {
    /// Its part of the serial chain, for each group of equal steps.
    pub stages: Vec<SublayerStage>,
    /// Seconds over all steps of the phase: of each link's lane, of each memory's bandwidth, of
    /// each device's work, and of the host that issues each device's kernels.
    pub busy: Vec<f64>,
    /// The needs of each device.
    pub needs: Vec<DeviceNeeds>,
}

/// The costs of all sublayers, homes and lead devices in one phase.
#[derive(Debug)]
pub(crate) struct PriceList<'a> {
    pub cost_model: CostModel<'a>,
    pub phase: Phase,
    /// The sublayers of each kind of layer.
    pub sublayers: Vec<PricedSublayer>,
    /// Groups of equal steps, of the first and largest micro-batch.
    pub kinds: Vec<Vec<Step>>,
    /// Number of micro-batches of a step.
    pub micro_batches: u64,
    /// For each device the sizes of what it may stream, ascending: possible sizes of a staging
    /// slot.
    sizes: Vec<Vec<Bytes>>,
    /// For each device the scratch sizes of its operators, ascending.
    scratch: Vec<Vec<Bytes>>,
    pub extent: RunExtent,
    table: Vec<Option<SublayerCost>>,
    homes: usize,
    /// Number of links or memories that each link and each memory represents.
    represented: Vec<f64>,
}

impl<'a> PriceList<'a> {
    pub fn new(
        cost_model: CostModel<'a>,
        batch_steps: &BatchSteps,
        phase: Phase,
        homes: &[Home],
    ) -> Result<Self, MissingRate> {
        Self::among(cost_model, batch_steps, phase, homes, &IdenticalGpus::none())
    }

    /// A price list in which only the first of identical GPUs computes, with the links and the
    /// memory of all of them.
    pub fn among(
        cost_model: CostModel<'a>,
        batch_steps: &BatchSteps,
        phase: Phase,
        homes: &[Home],
        identical_gpus: &IdenticalGpus,
    ) -> Result<Self, MissingRate> {
        let part = MicroBatch { index: 0, of: batch_steps.micro_batches };
        let largest = |steps: Vec<Step>| steps.iter().map(|step| part.step(step)).collect();
        let mut list = Self {
            cost_model,
            phase,
            sublayers: PricedSublayer::all(cost_model.model),
            kinds: batch_steps.kinds(phase).into_iter().map(largest).collect(),
            micro_batches: batch_steps.micro_batches,
            sizes: cost_model.machine.device_ids().map(|d| matrix_sizes(&cost_model, homes, d)).collect(),
            scratch: cost_model
                .machine
                .device_ids()
                .map(|d| scratch_sizes(&cost_model, &batch_steps.extent, d))
                .collect(),
            extent: batch_steps.extent,
            table: Vec::new(),
            homes: homes.len(),
            represented: represented(cost_model.machine, identical_gpus),
        };
        for sublayer in 0..list.sublayers.len() {
            for &home in homes {
                for device in cost_model.machine.device_ids() {
                    let represented = identical_gpus.is_represented(device);
                    let priced = if represented { None } else { list.priced(sublayer, home, device)? };
                    list.table.push(priced);
                }
            }
        }
        Ok(list)
    }

    /// Cost of sublayer `sublayer` with home number `home` and the lead `device`. `None` if that is
    /// impossible.
    pub fn get(&self, sublayer: usize, home: usize, device: DeviceId) -> Option<&SublayerCost> {
        let devices = self.cost_model.machine.devices.len();
        self.table[(sublayer * self.homes + home) * devices + device.0].as_ref()
    }

    /// Index of the `sublayer` of layers of `kind`.
    pub fn index(&self, kind: Option<LayerKind>, sublayer: Sublayer) -> usize {
        let index = self.sublayers.iter().position(|&other| other == PricedSublayer { kind, sublayer });
        index.expect("a model's layers are made of the model's sublayers")
    }

    /// The devices that can lead it.
    pub fn leads(&self, sublayer: usize, home: usize) -> impl Iterator<Item = DeviceId> + '_ {
        let devices = self.cost_model.machine.device_ids();
        devices.filter(move |&device| self.get(sublayer, home, device).is_some())
    }

    fn priced(
        &self,
        sublayer: usize,
        home: Home,
        device: DeviceId,
    ) -> Result<Option<SublayerCost>, MissingRate> {
        let PricedSublayer { kind, sublayer: sublayer_kind } = self.sublayers[sublayer];
        let cost_model = self.cost_model.of_kind(kind);
        let CostModel { machine, model, .. } = cost_model;
        if !home.admits(machine, sublayer_kind, device) {
            return Ok(None);
        }
        let Some(slices) = home.slices(machine, model, sublayer_kind, device, device) else {
            return Ok(None);
        };
        let lanes = machine.links.len() + machine.memories.len() + 2 * machine.devices.len();
        let mut busy = vec![0.0; lanes];
        let kinds = self.kinds.iter();
        let stages: Result<Vec<_>, _> = kinds
            .map(|steps| self.stage(cost_model, sublayer_kind, &slices, device, steps, &mut busy))
            .collect();
        Ok(Some(SublayerCost { stages: stages?, busy, needs: self.needs(sublayer, &slices) }))
    }

    fn stage(
        &self,
        cost_model: CostModel<'_>,
        sublayer: Sublayer,
        slices: &[Slice],
        lead: DeviceId,
        steps: &[Step],
        busy: &mut [f64],
    ) -> Result<SublayerStage, MissingRate> {
        // Only attention and transfers of KV depend on the context. For the rest one step
        // represents all.
        let steps = if sublayer == Sublayer::Attention { steps } else { &steps[..1] };
        let weight = if sublayer == Sublayer::Attention { 1.0 } else { self.kind_len(&steps[0]) as f64 };
        let mut stage = SublayerStage {
            operators: sublayer.operators(cost_model.model),
            columns: ALL_BUFFERS.map(|buffer| buffer.columns(cost_model.model)),
            lead,
            free: vec![],
            parts: vec![],
            floor: 0.0,
        };
        for task in fetches(cost_model, sublayer, slices, self.phase) {
            self.charge(cost_model, &task, steps, weight, busy)?;
        }
        for &operator in sublayer.operators(cost_model.model) {
            if !operator.is_matmul() {
                // Attention and rotation read and write the KV cache.
                let source = match sublayer {
                    Sublayer::Attention => self.source(&slices[0], lead),
                    _ => OperandSource::Resident,
                };
                let task = compute(operator, 0..0, lead, source);
                // The sums of several devices are added one after the other.
                let times = if operator.adds_partial_sums() { stage.devices().count() } else { 1 };
                let mut time = 0.0;
                for _ in 0..times {
                    time = self.charge(cost_model, &task, steps, weight, busy)?;
                }
                stage.free.push(time);
                continue;
            }
            stage.free.push(0.0);
            let before = busy.to_vec();
            for slice in slices {
                let device = slice.device(self.phase);
                let task = compute(operator, slice.rows.clone(), device, self.source(slice, device));
                let time = self.charge(cost_model, &task, steps, weight, busy)?;
                let columns = operator.output_columns(cost_model.model, &slice.rows);
                stage.parts.push(StagePart { device, columns, time });
            }
            if slices.len() > 1 {
                // Devices work at the same time. Only links and memories are shared.
                let shared = ..busy.len() - 2 * self.cost_model.machine.devices.len();
                let times = weight * self.micro_batches as f64;
                let added = busy[shared].iter().zip(&before).map(|(now, before)| (now - before) / times);
                stage.floor = added.fold(0.0, f64::max);
            }
        }
        Ok(stage)
    }

    /// Where `device` reads the slice. Streamed slices are staged in its own memory.
    fn source(&self, slice: &Slice, device: DeviceId) -> OperandSource {
        OperandSource::in_place(self.cost_model.machine, slice.home, device)
            .unwrap_or(OperandSource::Resident)
    }

    /// Adds the load of `task` in all steps to `busy`, and returns its mean time in one
    /// micro-batch. Weights are fetched once for all micro-batches. All other tasks run for each of
    /// them.
    fn charge(
        &self,
        cost_model: CostModel<'_>,
        task: &Task,
        steps: &[Step],
        weight: f64,
        busy: &mut [f64],
    ) -> Result<f64, MissingRate> {
        let machine = self.cost_model.machine;
        let weight = match task.action {
            Action::FetchWeights { .. } => weight,
            _ => weight * self.micro_batches as f64,
        };
        let mut total = 0.0;
        for step in steps {
            let price = cost_model.task_cost(task, step)?;
            total += price.alone.get();
            let lane = match task.lane.queue(machine) {
                Lane::Link(LinkId(link)) => link,
                Lane::Device(DeviceId(device)) => machine.links.len() + machine.memories.len() + device,
            };
            busy[lane] += price.alone.get() * weight / self.represented.get(lane).unwrap_or(&1.0);
            if let Lane::Device(device) = task.lane {
                let hosts = machine.links.len() + machine.memories.len() + machine.devices.len();
                // Each of the identical GPUs has its own host thread.
                let represented = self.represented[machine.links.len() + machine.device(device).memory.0];
                // A decode that the device may compute alone may need no host.
                let replayed = step.phase == Phase::Decode && machine.device(device).details.replays_alone;
                let issue = if replayed { 0.0 } else { price.issue.get() };
                busy[hosts + device.0] += issue * weight / represented;
            }
            for load in price.loads.into_iter().flatten() {
                let time = load.bytes / machine.memory(load.memory).bandwidth.value;
                let lane = machine.links.len() + load.memory.0;
                busy[lane] += time.get() * weight / self.represented[lane];
            }
        }
        Ok(total / steps.len() as f64)
    }

    /// Number of steps in the group of `step`.
    fn kind_len(&self, step: &Step) -> usize {
        self.kinds.iter().find(|kind| kind[0] == *step).map_or(1, Vec::len)
    }

    fn needs(&self, sublayer: usize, slices: &[Slice]) -> Vec<DeviceNeeds> {
        let PricedSublayer { kind, sublayer: sublayer_kind } = self.sublayers[sublayer];
        let CostModel { machine, model, formats } = self.cost_model.of_kind(kind);
        let mut needs = vec![DeviceNeeds::default(); machine.devices.len()];
        for (index, slice) in slices.iter().enumerate() {
            let device = slice.device(self.phase);
            let sizes = &self.sizes[device.0];
            let mut need = needs[device.0].union(DeviceNeeds::vectors(sublayer_kind));
            for operator in sublayer_kind.operators(model).iter().filter(|op| index == 0 || op.is_matmul()) {
                let steps = &self.scratch[device.0];
                let scratch = match steps[..] {
                    // A GPU has one size.
                    [all] if is_gpu(machine, device) => all,
                    _ => operator_scratch(machine, model, &self.extent, self.phase, *operator, device),
                };
                need = need.union(up_to(scratch, steps, STREAMS + sizes.len() as u32));
                for buffer in operator.reads().iter().chain([&operator.writes()]) {
                    need = need.union(DeviceNeeds::item(*buffer as u32));
                    if self.phase == Phase::Prefill {
                        need = need.union(DeviceNeeds::item(BUFFERS + *buffer as u32));
                    }
                }
            }
            let streamed = !machine.reads_in_place(device, slice.home);
            if sublayer_kind == Sublayer::Attention {
                need = need.union(DeviceNeeds::item(ATTENDS));
                if streamed {
                    need = need.union(DeviceNeeds::item(STREAMS_KV));
                }
            } else if streamed {
                let bytes = ModelShare::on_device(machine, model, device).matrix_bytes(
                    sublayer_kind,
                    formats,
                    &slice.rows,
                );
                need = need.union(up_to(bytes, sizes, STREAMS));
            }
            needs[device.0] = need;
        }
        needs
    }

    /// Bytes of each item, by device and bit.
    pub fn item_bytes(&self) -> Vec<Vec<Bytes>> {
        self.cost_model.machine.device_ids().map(|device| self.items_of(device)).collect()
    }

    fn items_of(&self, device: DeviceId) -> Vec<Bytes> {
        let CostModel { machine, model, formats } = self.cost_model;
        let extent = &self.extent;
        let shared = ModelShare::on_device(machine, model, device);
        let size = |buffer: ActivationBuffer, rows: u64| shared.whole_buffer(buffer, formats, rows);
        let decode = |buffer: ActivationBuffer| size(buffer, extent.rows(Phase::Decode));
        let prefill_extra = |buffer: ActivationBuffer| match buffer {
            ActivationBuffer::Logits => Bytes::ZERO,
            _ => size(buffer, extent.rows(Phase::Prefill)).saturating_sub(decode(buffer)),
        };
        let mut items: Vec<_> =
            ALL_BUFFERS.map(decode).into_iter().chain(ALL_BUFFERS.map(prefill_extra)).collect();
        items.push(rotation_table_bytes(model, extent.context) * shared.ranks);
        // The number of slots is chosen later, when it is known what streams.
        let slots = Pipelining::default().slots as u64;
        let kv = |kind| shared_cache_bytes(&shared.of_kind(Some(kind)), formats, extent);
        items.push(model.kinds().map(|(kind, _)| kv(kind)).max().unwrap_or_default() * slots);
        items.extend(differences(&self.sizes[device.0]).map(|more| more * slots));
        items.extend(differences(&self.scratch[device.0]));
        items
    }
}

/// Number of links or memories that each link and each memory represents.
fn represented(machine: &Machine, identical_gpus: &IdenticalGpus) -> Vec<f64> {
    let links = machine
        .links
        .iter()
        .map(|l| identical_gpus.represented_by(l.from).max(identical_gpus.represented_by(l.to)));
    let memories = machine.memory_ids().map(|memory| identical_gpus.represented_by(memory));
    links.chain(memories).map(|count| count as f64).collect()
}

/// The items from bit `first` on of a buffer that is as large as its largest use: one item for each
/// step of the ascending `sizes` up to the first that holds `bytes`.
fn up_to(bytes: Bytes, sizes: &[Bytes], first: u32) -> DeviceNeeds {
    let below = sizes.partition_point(|&size| size < bytes);
    let steps = if bytes > Bytes::ZERO { sizes.len().min(below + 1) } else { 0 };
    (first..first + steps as u32)
        .fold(DeviceNeeds::default(), |needs, bit| needs.union(DeviceNeeds::item(bit)))
}

/// Sizes that a buffer may have, ascending: those of `sizes`, or where they are more than
/// [`MOST_SIZES`] the largest of every few neighbours, so that each use has room.
fn steps_of(mut sizes: Vec<Bytes>) -> Vec<Bytes> {
    sizes.retain(|&bytes| bytes > Bytes::ZERO);
    sizes.sort_unstable();
    sizes.dedup();
    let neighbours = sizes.len().div_ceil(MOST_SIZES).max(1);
    sizes.rchunks(neighbours).rev().map(|chunk| chunk[chunk.len() - 1]).collect()
}

/// The difference of each of the ascending sizes to the one before.
fn differences(sizes: &[Bytes]) -> impl Iterator<Item = Bytes> {
    let below = std::iter::once(Bytes::ZERO).chain(sizes.iter().copied());
    sizes.iter().zip(below).map(|(&size, below)| size - below)
}

/// The scratch sizes of `device`, ascending.
fn scratch_sizes(cost_model: &CostModel<'_>, extent: &RunExtent, device: DeviceId) -> Vec<Bytes> {
    let CostModel { machine, model, .. } = *cost_model;
    if is_gpu(machine, device) {
        return vec![gpu_scratch(machine, model, extent, device)];
    }
    let mut sizes = Vec::new();
    for PricedSublayer { kind, sublayer } in PricedSublayer::all(model) {
        let shape = model.shape_or_ends(kind);
        for &operator in sublayer.operators(shape) {
            for phase in [Phase::Prefill, Phase::Decode] {
                sizes.push(operator_scratch(machine, shape, extent, phase, operator, device));
            }
        }
    }
    steps_of(sizes)
}

/// The sizes of whole matrices, and of the parts that `device` gathers.
fn matrix_sizes(cost_model: &CostModel<'_>, homes: &[Home], device: DeviceId) -> Vec<Bytes> {
    let CostModel { machine, model, formats } = cost_model;
    let shared = ModelShare::on_device(machine, model, device);
    let mut sizes = Vec::new();
    let all = PricedSublayer::all(model).into_iter();
    for PricedSublayer { kind, sublayer } in all.filter(|s| s.sublayer != Sublayer::Embed) {
        let shape = model.shape_or_ends(kind);
        let size = |rows: &_| shared.of_kind(kind).matrix_bytes(sublayer, formats, rows);
        sizes.extend(sublayer.matrix(shape).map(|(rows, _)| size(&(0..rows))));
        for home in homes.iter().filter(|home| home.is_split() && home.admits(machine, sublayer, device)) {
            let slices = home.slices(machine, shape, sublayer, device, device).into_iter().flatten();
            let streamed = slices.filter(|slice| !machine.reads_in_place(slice.prefill, slice.home));
            sizes.extend(streamed.map(|slice| size(&slice.rows)));
        }
    }
    steps_of(sizes)
}
