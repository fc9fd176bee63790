//! Several GPUs alike, each with a memory of its own: a layer is with one of them.
//!
//! The steps of a batch go through the layers one after the other, so of several devices alike one computes at a time, and
//! which one holds a layer changes nothing but a hop. The search therefore knows only the first, with the room of all
//! and links as fast as all together, and is no larger than with one GPU. Its solution is dealt out afterwards. A layer divided
//! between two of them is not looked at: as one device of two ranks they divide every matrix of it, which is tried as
//! another degree of tensor parallelism.

use hwprofiles::{Bytes, DeviceId, Machine, MemoryId};

/// Devices alike, the first of which stands for all; none where there are no two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdenticalGpus {
    pub devices: Vec<DeviceId>,
    pub memories: Vec<MemoryId>,
}

impl IdenticalGpus {
    pub fn from_machine(machine: &Machine) -> Self {
        let devices = Some(machine.twins()).filter(|gpus| gpus.len() > 1).unwrap_or_default();
        let memories = devices.iter().map(|&id| machine.device(id).memory).collect();
        Self { devices, memories }
    }

    /// Nothing is alike.
    pub fn none() -> Self {
        Self { devices: vec![], memories: vec![] }
    }

    /// How many: 1 where there are none.
    pub fn count(&self) -> u64 {
        self.devices.len().max(1) as u64
    }

    /// The first, and its memory.
    pub fn first(&self) -> Option<(DeviceId, MemoryId)> {
        Some((*self.devices.first()?, *self.memories.first()?))
    }

    /// Whether another device stands for it.
    pub fn is_spare(&self, device: DeviceId) -> bool {
        self.devices.iter().skip(1).any(|&twin| twin == device)
    }

    /// Whether another memory stands for it.
    pub fn is_spare_memory(&self, memory: MemoryId) -> bool {
        self.memories.iter().skip(1).any(|&twin| twin == memory)
    }

    /// How many there are in place of `memory`.
    pub fn in_place_of(&self, memory: MemoryId) -> u64 {
        if self.memories.first() == Some(&memory) { self.count() } else { 1 }
    }

    /// What each memory holds, the first twin's what all of them do.
    pub fn capacity(&self, machine: &Machine) -> Vec<Bytes> {
        self.capacity_less(machine, 0.0)
    }

    /// The same, less a share of what the twins hold.
    pub fn capacity_less(&self, machine: &Machine, share: f64) -> Vec<Bytes> {
        let held = |id: MemoryId| {
            let all = machine.memory(id).capacity.value * self.in_place_of(id);
            match self.in_place_of(id) {
                1 => all,
                _ => all.saturating_sub(Bytes::new((all.as_f64() * share) as u64)),
            }
        };
        machine.memory_ids().map(held).collect()
    }

    /// The machine in which the first twin has the room of all, less a share.
    pub fn pooled(&self, machine: &Machine, share: f64) -> Machine {
        let mut pooled = machine.clone();
        for (memory, capacity) in pooled.memories.iter_mut().zip(self.capacity_less(machine, share)) {
            memory.capacity.value = capacity;
        }
        pooled
    }
}
