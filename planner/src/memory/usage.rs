//! Exact bytes that a placement takes from each memory, counted as the executor allocates them.

use crate::placement::{LayerPlacement, ModelShare, Placement};
use crate::program::{Action, Lane, PhasePrograms, RunExtent};
use hwprofiles::Memory;
use hwprofiles::{Bytes, DType, DeviceId, Elements, Machine};
use scenarios::{ActivationBuffer, Formats, Model, Sublayer, kv_bytes};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

/// Bytes of one memory, by purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryUsage {
    /// Resident matrices, norms, biases and position tables.
    pub weights: Bytes,
    /// What layers keep of the sequences at the end of the context: KV caches and states.
    pub kv: Bytes,
    /// The part of `kv` that has the same size at any context: states of recurrences and of
    /// compressors.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub state: Bytes,
    /// Activation buffers, and the kernels' working memory.
    pub activations: Bytes,
    /// Staging slots for streamed weights and KV.
    pub staging: Bytes,
}

impl MemoryUsage {
    /// Sum of all purposes; `state` is in `kv`.
    pub fn total(&self) -> Bytes {
        self.weights + self.kv + self.activations + self.staging
    }
}

impl Add for MemoryUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            weights: self.weights + other.weights,
            kv: self.kv + other.kv,
            state: self.state + other.state,
            activations: self.activations + other.activations,
            staging: self.staging + other.staging,
        }
    }
}

/// Models without a state are the common case: nothing is written for them.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_nothing(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

/// The activation buffers of each device, with the most rows that each needs.
pub fn activation_buffers(
    programs: &PhasePrograms,
    extent: &RunExtent,
) -> BTreeMap<(DeviceId, ActivationBuffer), u64> {
    let mut buffers = BTreeMap::new();
    for program in programs.both() {
        let rows = extent.rows(program.phase);
        let mut touch = |device: DeviceId, buffer: ActivationBuffer| {
            let rows = if buffer == ActivationBuffer::Logits { extent.sampled() } else { rows };
            let most = buffers.entry((device, buffer)).or_insert(0);
            *most = rows.max(*most);
        };
        for task in &program.tasks {
            match (&task.action, task.lane) {
                (Action::Compute { operator, .. }, Lane::Device(device)) => {
                    touch(device, operator.writes());
                    operator.reads().iter().for_each(|&buffer| touch(device, buffer));
                }
                (Action::Hop { buffer, .. }, Lane::Device(device)) => touch(device, *buffer),
                _ => {}
            }
        }
    }
    buffers
}

/// Bytes of one staging slot of a device for each kind of stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StagingSlot {
    /// For weights: the largest slice that is streamed.
    pub weights: Bytes,
    /// For the KV cache of one layer.
    pub kv: Bytes,
}

/// Bytes of one staging slot of each device that streams.
pub fn staging_slots(
    machine: &Machine,
    programs: &PhasePrograms,
    model: &Model,
    formats: &Formats,
    extent: &RunExtent,
) -> BTreeMap<DeviceId, StagingSlot> {
    let mut slots: BTreeMap<DeviceId, StagingSlot> = BTreeMap::new();
    for task in programs.both().into_iter().flat_map(|program| &program.tasks) {
        match &task.action {
            Action::FetchWeights { sublayer, rows, device, .. } => {
                let shared = ModelShare::on_device(machine, model.shape_or_ends(task.kind), *device);
                let bytes = shared.matrix_bytes(*sublayer, formats, rows);
                let slot = &mut slots.entry(*device).or_default().weights;
                *slot = bytes.max(*slot);
            }
            Action::FetchKv { device, .. } => {
                let shared = ModelShare::on_device(machine, model.shape_or_ends(task.kind), *device);
                let slot = &mut slots.entry(*device).or_default().kv;
                *slot = shared_cache_bytes(&shared, formats, extent).max(*slot);
            }
            _ => {}
        }
    }
    slots
}

/// Bytes of the cache of one layer of `shape` with `sequences` sequences in a run of `extent`:
/// keys, values and states of the whole context, and what takes proposed tokens back.
pub fn cache_bytes(shape: &Model, formats: &Formats, sequences: u64, extent: &RunExtent) -> Bytes {
    let unverified =
        if extent.context > 0 { shape.unverified_bytes(extent.step_tokens) } else { Bytes::ZERO };
    kv_bytes(shape, formats, sequences, extent.context) + unverified * sequences
}

/// [`cache_bytes`] of all sequences of `extent`, over all ranks.
pub(crate) fn shared_cache_bytes(shared: &ModelShare<'_>, formats: &Formats, extent: &RunExtent) -> Bytes {
    cache_bytes(&shared.share, formats, extent.batch, extent) * shared.ranks
}

/// Which devices hold the norms, biases and tables of which sublayers: those that compute the
/// sublayer in either phase.
pub fn vector_holders(placement: &Placement) -> BTreeSet<(DeviceId, Option<u32>, Sublayer)> {
    let holders = placement.sublayers().flat_map(|(layer, sublayer, slices)| {
        slices.iter().flat_map(move |s| [s.prefill, s.decode].map(|device| (device, layer, sublayer)))
    });
    holders.collect()
}

/// Bytes of one device's rotation tables: cosine and sine in f32 for half of a head's rotated
/// columns at each position. A model has two tables if its layers with windows use another
/// rotation.
pub fn rotation_table_bytes(model: &Model, context: u64) -> Bytes {
    DType::F32.bytes(Elements::product(&[context, model.rotation_widths().iter().sum()]))
}

/// Each layer of `placement` once, in the order of the first of its kind, with their number.
pub(crate) fn different_layers(placement: &Placement) -> Vec<(&LayerPlacement, u64)> {
    let mut layers: Vec<(&LayerPlacement, u64)> = Vec::new();
    // Most layers are like the one before, or like the one before that.
    for layer in &placement.layers {
        match layers.iter_mut().rev().find(|(known, _)| *known == layer) {
            Some((_, count)) => *count += 1,
            None => layers.push((layer, 1)),
        }
    }
    layers
}

/// Whether the head reads the embedding table itself: the embedding is tied, undivided and in the
/// same memory.
pub fn shares_embedding(model: &Model, placement: &Placement) -> bool {
    let (embed, head) = (&placement.embed, &placement.head);
    model.tied_embeddings && embed.len() == 1 && head.len() == 1 && embed[0].home == head[0].home
}

/// The first memory whose capacity is exceeded, with the capacity that it needs.
pub(crate) fn overfilled<'m>(machine: &'m Machine, used: &[MemoryUsage]) -> Option<(&'m Memory, Bytes)> {
    let totals = machine.memories.iter().zip(used.iter().map(MemoryUsage::total));
    totals.into_iter().find(|(memory, total)| *total > memory.capacity.value)
}
