//! What the layers of a placement need of each memory, one by one, so that many placements of the
//! same layers are counted quickly.

use crate::memory::scratch::{gpu_scratch, is_gpu, operator_scratch, scratch_bytes};
use crate::memory::usage::{
    MemoryUsage, StagingSlot, activation_buffers, different_layers, rotation_table_bytes, shared_cache_bytes,
    shares_embedding, staging_slots,
};
use crate::placement::{LayerPlacement, ModelShare, Placement, Slices};
use crate::program::{ALL_BUFFERS, PhasePrograms, RunExtent};
use hwprofiles::{Bytes, Machine};
use scenarios::{ActivationBuffer, Formats, LayerKind, Model, Phase, Sublayer};

/// What layers need of memories: bytes that add up, and what the layers of a device share.
#[derive(Debug, Clone)]
pub(crate) struct LayerNeeds {
    /// Weights, KV and states by memory.
    kept: Vec<MemoryUsage>,
    /// By device, what its layers share.
    shared: Vec<SharedNeeds>,
}

/// What the layers of one device share: of each thing, the largest that one of them needs.
#[derive(Debug, Clone, Copy, Default)]
struct SharedNeeds {
    /// Whether it attends in a phase.
    attends: bool,
    /// The rows of each activation buffer.
    rows: [u64; ALL_BUFFERS.len()],
    scratch: Bytes,
    slot: StagingSlot,
}

impl SharedNeeds {
    fn join(&mut self, other: &Self) {
        self.attends |= other.attends;
        self.rows.iter_mut().zip(other.rows).for_each(|(most, rows)| *most = rows.max(*most));
        self.scratch = self.scratch.max(other.scratch);
        self.slot.weights = self.slot.weights.max(other.slot.weights);
        self.slot.kv = self.slot.kv.max(other.slot.kv);
    }
}

impl LayerNeeds {
    /// Of no layer.
    pub fn none(machine: &Machine) -> Self {
        let kept = vec![MemoryUsage::default(); machine.memories.len()];
        Self { kept, shared: vec![SharedNeeds::default(); machine.devices.len()] }
    }

    /// Adds `count` layers that need `other`.
    pub fn add(&mut self, other: &Self, count: u64) {
        for (kept, other) in self.kept.iter_mut().zip(&other.kept) {
            kept.weights += other.weights * count;
            kept.kv += other.kv * count;
            kept.state += other.state * count;
        }
        self.shared.iter_mut().zip(&other.shared).for_each(|(shared, other)| shared.join(other));
    }

    /// The same weights, KV and states with the buffers, scratch and slots of `programs`.
    fn with_programs(
        mut self,
        machine: &Machine,
        programs: &PhasePrograms,
        model: &Model,
        formats: &Formats,
        extent: &RunExtent,
    ) -> Self {
        for shared in &mut self.shared {
            *shared = SharedNeeds { attends: shared.attends, ..SharedNeeds::default() };
        }
        for ((device, buffer), rows) in activation_buffers(programs, extent) {
            self.shared[device.0].rows[buffer as usize] = rows;
        }
        for (device, bytes) in scratch_bytes(machine, programs, model, extent) {
            self.shared[device.0].scratch = bytes;
        }
        for (device, slot) in staging_slots(machine, programs, model, formats, extent) {
            self.shared[device.0].slot = slot;
        }
        self
    }
}

/// Counts what placements of a model need in runs of one extent.
pub(crate) struct NeedsCounter<'a> {
    machine: &'a Machine,
    model: &'a Model,
    formats: &'a Formats,
    extent: RunExtent,
    /// The model as the ranks that own each memory divide it.
    within: Vec<ModelShare<'a>>,
    /// The scratch memory of each device that is a GPU.
    gpu_scratch: Vec<Option<Bytes>>,
}

impl<'a> NeedsCounter<'a> {
    /// A counter for runs of `extent`.
    pub fn new(machine: &'a Machine, model: &'a Model, formats: &'a Formats, extent: &RunExtent) -> Self {
        let within = machine.memory_ids().map(|memory| ModelShare::in_memory(machine, model, memory));
        let of_gpu = |device| is_gpu(machine, device).then(|| gpu_scratch(machine, model, extent, device));
        let gpu_scratch = machine.device_ids().map(of_gpu).collect();
        Self { machine, model, formats, extent: *extent, within: within.collect(), gpu_scratch }
    }

    /// The bytes of each memory, by index, that layers take which need so much, with `slots`
    /// staging slots. The bytes in a striped memory count in the memories below it.
    pub fn usage(&self, LayerNeeds { kept, shared }: LayerNeeds, slots: u64) -> Vec<MemoryUsage> {
        let mut usage = kept;
        for (device, shared) in self.machine.device_ids().zip(shared) {
            let own = self.machine.device(device).memory.0;
            let within = &self.within[own];
            if shared.attends {
                usage[own].weights += rotation_table_bytes(self.model, self.extent.context) * within.ranks;
            }
            for buffer in ALL_BUFFERS {
                let rows = shared.rows[buffer as usize];
                if rows > 0 {
                    usage[own].activations += within.whole_buffer(buffer, self.formats, rows);
                }
            }
            usage[own].activations += shared.scratch;
            usage[own].staging += (shared.slot.weights + shared.slot.kv) * slots;
        }
        usage
    }

    /// What the embedding and the head need.
    pub fn of_ends(&self, placement: &Placement) -> LayerNeeds {
        let mut needs = LayerNeeds::none(self.machine);
        self.add(&mut needs, None, Sublayer::Embed, &placement.embed);
        if shares_embedding(self.model, placement) {
            self.add_uses(&mut needs, None, Sublayer::Head, &placement.head);
        } else {
            self.add(&mut needs, None, Sublayer::Head, &placement.head);
        }
        needs
    }

    /// What `placement` needs with `layers` in place of its own, each different one with its
    /// number.
    pub fn of_layers(&self, placement: &Placement, layers: &[(&LayerPlacement, u64)]) -> LayerNeeds {
        let mut needs = self.of_ends(placement);
        layers.iter().for_each(|&(layer, count)| needs.add(&self.of_layer(layer), count));
        needs
    }

    /// What one layer needs.
    pub fn of_layer(&self, layer: &LayerPlacement) -> LayerNeeds {
        let mut needs = LayerNeeds::none(self.machine);
        layer.iter().for_each(|(sublayer, slices)| self.add(&mut needs, Some(layer.kind), sublayer, slices));
        needs
    }

    fn add(&self, needs: &mut LayerNeeds, kind: Option<LayerKind>, sublayer: Sublayer, slices: &Slices) {
        self.add_homes(&mut needs.kept, kind, sublayer, slices);
        self.add_uses(needs, kind, sublayer, slices);
    }

    /// Adds matrices, caches and states where they are.
    fn add_homes(
        &self,
        kept: &mut [MemoryUsage],
        kind: Option<LayerKind>,
        sublayer: Sublayer,
        slices: &Slices,
    ) {
        let Self { machine, formats, extent, within, .. } = self;
        for slice in slices {
            let shared = within[slice.home.0].of_kind(kind);
            if sublayer != Sublayer::Attention {
                let bytes = shared.matrix_bytes(sublayer, formats, &slice.rows);
                for (memory, bytes) in machine.bytes_by_memory(slice.home, bytes) {
                    kept[memory.0].weights += bytes;
                }
                continue;
            }
            let cache = shared_cache_bytes(&shared, formats, extent);
            for (memory, bytes) in machine.bytes_by_memory(slice.home, cache) {
                kept[memory.0].kv += bytes;
            }
            if extent.context > 0 {
                let unverified = shared.share.unverified_bytes(extent.step_tokens) * shared.ranks;
                let state = shared.state_bytes(extent.batch) + unverified * extent.batch;
                for (memory, bytes) in machine.bytes_by_memory(slice.home, state) {
                    kept[memory.0].state += bytes;
                }
            }
        }
    }

    /// Adds vectors, and what devices share, where sublayers are computed.
    fn add_uses(&self, needs: &mut LayerNeeds, kind: Option<LayerKind>, sublayer: Sublayer, slices: &Slices) {
        for device in self.machine.device_ids() {
            if slices.iter().any(|slice| [slice.prefill, slice.decode].contains(&device)) {
                let own = self.machine.device(device).memory.0;
                needs.kept[own].weights += self.within[own].of_kind(kind).vector_bytes(sublayer);
                needs.shared[device.0].attends |= sublayer == Sublayer::Attention;
            }
        }
        let shape = self.model.shape_or_ends(kind);
        for phase in [Phase::Prefill, Phase::Decode] {
            self.add_operators(&mut needs.shared, shape, phase, (sublayer, slices));
            self.add_slots(&mut needs.shared, shape, phase, (sublayer, slices));
        }
    }

    /// Adds buffers and scratch. Hops need nothing more: they bring what the next operator on the
    /// device reads.
    fn add_operators(
        &self,
        needs: &mut [SharedNeeds],
        shape: &Model,
        phase: Phase,
        (sublayer, slices): (Sublayer, &Slices),
    ) {
        let Self { machine, extent, .. } = self;
        for &operator in sublayer.operators(shape) {
            let slices = if operator.is_matmul() { &slices[..] } else { &slices[..1] };
            for device in slices.iter().map(|slice| slice.device(phase)) {
                let need = &mut needs[device.0];
                for &buffer in operator.reads().iter().chain([&operator.writes()]) {
                    let logits = buffer == ActivationBuffer::Logits;
                    let rows = if logits { extent.sampled() } else { extent.rows(phase) };
                    let most = &mut need.rows[buffer as usize];
                    *most = rows.max(*most);
                }
                let scratch = match self.gpu_scratch[device.0] {
                    Some(of_all) => of_all,
                    None => operator_scratch(machine, shape, extent, phase, operator, device),
                };
                need.scratch = need.scratch.max(scratch);
            }
        }
    }

    fn add_slots(
        &self,
        needs: &mut [SharedNeeds],
        shape: &Model,
        phase: Phase,
        (sublayer, slices): (Sublayer, &Slices),
    ) {
        if !(sublayer == Sublayer::Attention || sublayer.operators(shape).iter().any(|op| op.is_matmul())) {
            return;
        }
        for slice in slices {
            let device = slice.device(phase);
            if self.machine.reads_in_place(device, slice.home) {
                continue;
            }
            let shared = ModelShare::on_device(self.machine, shape, device);
            let slot = &mut needs[device.0].slot;
            if sublayer == Sublayer::Attention {
                slot.kv = shared_cache_bytes(&shared, self.formats, &self.extent).max(slot.kv);
            } else {
                slot.weights = shared.matrix_bytes(sublayer, self.formats, &slice.rows).max(slot.weights);
            }
        }
    }
}

/// Bytes that `placement` takes from each memory of `machine`, by memory index, with the buffers,
/// scratch and slots of its programs. The bytes in a striped memory count in the memories below it.
pub fn usage(
    machine: &Machine,
    model: &Model,
    formats: &Formats,
    placement: &Placement,
    programs: &PhasePrograms,
    extent: &RunExtent,
) -> Vec<MemoryUsage> {
    let counter = NeedsCounter::new(machine, model, formats, extent);
    let needs = counter.of_layers(placement, &different_layers(placement));
    let needs = needs.with_programs(machine, programs, model, formats, extent);
    counter.usage(needs, placement.pipelining.slots as u64)
}
