//! Activation buffers, scratch memory and staging slots of each device.

use crate::memory::scratch::{is_gpu, operator_scratch, scratch_bytes};
use crate::memory::usage::{StagingSlot, activation_buffers, shared_cache_bytes, staging_slots};
use crate::placement::{LayerPlacement, ModelShare, Placement, Slices};
use crate::program::{ALL_BUFFERS, PhasePrograms, RunExtent};
use hwprofiles::{Bytes, DeviceId, Machine};
use scenarios::{ActivationBuffer, Formats, LayerKind, Model, Phase, Sublayer};
use std::collections::BTreeMap;

/// What the tasks of both phases need beside weights and caches.
pub(super) struct WorkingMemory {
    /// The rows of each device's buffers.
    pub buffers: BTreeMap<(DeviceId, ActivationBuffer), u64>,
    pub scratch: BTreeMap<DeviceId, Bytes>,
    pub slots: BTreeMap<DeviceId, StagingSlot>,
}

impl WorkingMemory {
    /// What the tasks of `programs` need.
    pub fn of_programs(
        machine: &Machine,
        programs: &PhasePrograms,
        model: &Model,
        formats: &Formats,
        extent: &RunExtent,
    ) -> Self {
        Self {
            buffers: activation_buffers(programs, extent),
            scratch: scratch_bytes(machine, programs, model, extent),
            slots: staging_slots(machine, programs, model, formats, extent),
        }
    }

    /// What the programs of `placement` need, where `layers` are its different layers in their
    /// order. Hops need nothing more: they bring what the next operator on the device reads.
    pub fn of_layers(
        machine: &Machine,
        model: &Model,
        formats: &Formats,
        extent: &RunExtent,
        placement: &Placement,
        layers: &[(&LayerPlacement, u64)],
    ) -> Self {
        let mut needs = Self { buffers: BTreeMap::new(), scratch: BTreeMap::new(), slots: BTreeMap::new() };
        let mut rows = vec![[0; ALL_BUFFERS.len()]; machine.devices.len()];
        for phase in [Phase::Prefill, Phase::Decode] {
            let mut add = |kind: Option<LayerKind>, sublayer: Sublayer, slices: &Slices| {
                let shape = model.shape_or_ends(kind);
                needs.add_operators(machine, shape, extent, phase, (sublayer, slices), &mut rows);
                needs.add_slots(machine, shape, formats, extent, phase, (sublayer, slices));
            };
            add(None, Sublayer::Embed, &placement.embed);
            for (layer, _) in layers {
                layer.iter().for_each(|(sublayer, slices)| add(Some(layer.kind), sublayer, slices));
            }
            add(None, Sublayer::Head, &placement.head);
        }
        for (device, rows) in machine.device_ids().zip(rows) {
            let used = ALL_BUFFERS.into_iter().filter(|&buffer| rows[buffer as usize] > 0);
            needs.buffers.extend(used.map(|buffer| ((device, buffer), rows[buffer as usize])));
        }
        needs
    }

    /// `most_rows` are the rows of each device's buffers.
    fn add_operators(
        &mut self,
        machine: &Machine,
        shape: &Model,
        extent: &RunExtent,
        phase: Phase,
        (sublayer, slices): (Sublayer, &Slices),
        most_rows: &mut [[u64; ALL_BUFFERS.len()]],
    ) {
        for &operator in sublayer.operators(shape) {
            let slices = if operator.is_matmul() { &slices[..] } else { &slices[..1] };
            for device in slices.iter().map(|slice| slice.device(phase)) {
                for &buffer in operator.reads().iter().chain([&operator.writes()]) {
                    let logits = buffer == ActivationBuffer::Logits;
                    let rows = if logits { extent.sampled() } else { extent.rows(phase) };
                    let most = &mut most_rows[device.0][buffer as usize];
                    *most = rows.max(*most);
                }
                // A GPU's scratch is the same whatever it computes.
                if !(is_gpu(machine, device) && self.scratch.contains_key(&device)) {
                    let bytes = operator_scratch(machine, shape, extent, phase, operator, device);
                    let most = self.scratch.entry(device).or_default();
                    *most = bytes.max(*most);
                }
            }
        }
    }

    fn add_slots(
        &mut self,
        machine: &Machine,
        shape: &Model,
        formats: &Formats,
        extent: &RunExtent,
        phase: Phase,
        (sublayer, slices): (Sublayer, &Slices),
    ) {
        if !(sublayer == Sublayer::Attention || sublayer.operators(shape).iter().any(|op| op.is_matmul())) {
            return;
        }
        for slice in slices {
            let device = slice.device(phase);
            if machine.reads_in_place(device, slice.home) {
                continue;
            }
            let shared = ModelShare::on_device(machine, shape, device);
            let slot = self.slots.entry(device).or_default();
            if sublayer == Sublayer::Attention {
                slot.kv = shared_cache_bytes(&shared, formats, extent).max(slot.kv);
            } else {
                slot.weights = shared.matrix_bytes(sublayer, formats, &slice.rows).max(slot.weights);
            }
        }
    }
}
