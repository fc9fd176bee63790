//! What runs on a machine reached of the rates that its parts promise.

use crate::machine::{Device, DeviceKind, Machine, MemoryKind};
use crate::rates::Bound;
use crate::units::{Ratio, Sourced};
use serde::{Deserialize, Serialize};

/// What runs on this machine reached of the rates that its parts promise. `fulcrum machine fit`
/// finds it from an engine's own benchmark.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachedRates {
    /// By the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<ReachedShares>,
    /// By each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<ReachedShares>,
    /// By copies between the host's memory and a GPU's, of the link's bandwidth: 1 is as promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Sourced<Ratio>>,
}

/// Shares of the rates that a device's parts promise: 1 is as promised, 0.9 a tenth less.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachedShares {
    /// Of reading memory, which mostly decides how fast tokens are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Sourced<Ratio>>,
    /// Of computing, which mostly decides how fast prompts are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Sourced<Ratio>>,
}

impl ReachedRates {
    /// What a kind of device reached.
    fn by_device(&self, kind: DeviceKind) -> Option<&ReachedShares> {
        match kind {
            DeviceKind::Gpu => self.gpu.as_ref(),
            DeviceKind::Cpu => self.cpu.as_ref(),
            DeviceKind::Loopback => None,
        }
    }

    /// Changes the rates of `machine` by these shares. A memory that a GPU shares with the CPU is
    /// read at the GPU's.
    pub(crate) fn change(&self, machine: &mut Machine) {
        for id in machine.memory_ids().collect::<Vec<_>>() {
            let owners = machine.devices.iter().filter(|device| device.memory == id);
            let owner = owners.map(|device| device.kind).max_by_key(|kind| *kind == DeviceKind::Gpu);
            let share = owner.and_then(|kind| self.by_device(kind)?.memory.as_ref());
            let Some(share) = share else { continue };
            let memory = &mut machine.memories[id.0];
            let promised = memory.bandwidth.value;
            let reason = format!("{} of {promised} ({})", share.value, share.source);
            memory.bandwidth = Sourced::estimated(promised * share.value.get(), &reason);
            memory.details.reached = Some(share.clone());
        }
        for device in &mut machine.devices {
            let Some(ReachedShares { memory, compute }) = self.by_device(device.kind) else { continue };
            let factor = |share: &Option<Sourced<Ratio>>| share.as_ref().map(|share| share.value);
            for (bound, factor) in [(Bound::Memory, factor(memory)), (Bound::Compute, factor(compute))] {
                *device = factor.map_or_else(|| device.clone(), |factor| device.faster(bound, factor));
            }
            device.details.reached_compute.clone_from(compute);
        }
        self.change_links(machine);
        machine.restripe();
    }

    fn change_links(&self, machine: &mut Machine) {
        let Some(share) = &self.link else { return };
        let memories = &machine.memories;
        for link in &mut machine.links {
            let ends = [link.from, link.to].map(|id| memories[id.0].kind);
            if ends.contains(&MemoryKind::Hbm) && ends[0] != ends[1] {
                let promised = link.bandwidth.value;
                let reason = format!("{} of {promised} ({})", share.value, share.source);
                link.bandwidth = Sourced::estimated(promised * share.value.get(), &reason);
            }
        }
    }
}

impl Device {
    /// The share of what power pays for at which it computed on this machine; 1 where nothing was
    /// measured.
    pub(crate) fn reached_compute(&self) -> f64 {
        self.details.reached_compute.as_ref().map_or(1.0, |share| share.value.get())
    }
}
