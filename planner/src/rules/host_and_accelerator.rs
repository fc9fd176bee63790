//! The two devices that a rule knows: a host and an accelerator.

use super::no_rule::NoRule;
use crate::placement::{LayerPlacement, Placement, whole_slice};
use hwprofiles::{DeviceId, DeviceKind, Machine, MemoryId};
use scenarios::{LayerKind, Model, Sublayer};

/// A host with its memory and an accelerator with its own: the first of each that a machine has.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostAndAccelerator {
    pub host: DeviceId,
    /// The host's own memory, which holds the token table.
    pub table: MemoryId,
    /// The memory that the rule uses as the host's: its own, or one striped over it.
    pub dram: MemoryId,
    pub accelerator: DeviceId,
    pub own: MemoryId,
}

impl HostAndAccelerator {
    pub fn from_machine(machine: &Machine, dram: MemoryId) -> Result<Self, NoRule> {
        let (host, table) = Self::host(machine)?;
        let (accelerator, own) = Self::accelerator(machine)?;
        Ok(Self { host, table, dram, accelerator, own })
    }

    pub fn host(machine: &Machine) -> Result<(DeviceId, MemoryId), NoRule> {
        first(machine, true).ok_or(NoRule::NoDevice("host CPU"))
    }

    pub fn accelerator(machine: &Machine) -> Result<(DeviceId, MemoryId), NoRule> {
        first(machine, false).ok_or(NoRule::NoDevice("accelerator"))
    }

    /// Every layer with its sublayers where `place` puts them: a home, and devices for prefill and
    /// decode. The token table and the head stay with the host, since a staging slot for the head
    /// would take more than a layer.
    pub fn placement(
        &self,
        model: &Model,
        place: impl Fn(usize, LayerKind, Sublayer) -> (MemoryId, [DeviceId; 2]),
    ) -> Placement {
        let with_host = with_host(model, self.host, self.table, self.dram);
        let layer = |(index, layer): (usize, &LayerPlacement)| {
            LayerPlacement::from_slices(layer.kind, |sublayer| {
                let (home, [prefill, decode]) = place(index, layer.kind, sublayer);
                vec![whole_slice(model.shape(layer.kind), sublayer, home, prefill, decode)]
            })
        };
        Placement { layers: with_host.layers.iter().enumerate().map(layer).collect(), ..with_host }
    }
}

/// Everything with the host: the token table in its own memory, the rest in `dram`.
pub(super) fn with_host(model: &Model, host: DeviceId, own: MemoryId, dram: MemoryId) -> Placement {
    let embed = vec![whole_slice(model, Sublayer::Embed, own, host, host)];
    Placement { embed, ..Placement::uniform(model, host, dram) }
}

fn first(machine: &Machine, cpu: bool) -> Option<(DeviceId, MemoryId)> {
    let kind = |&id: &DeviceId| (machine.device(id).kind == DeviceKind::Cpu) == cpu;
    machine.device_ids().find(kind).map(|id| (id, machine.device(id).memory))
}
