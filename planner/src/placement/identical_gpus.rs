//! Several identical GPUs, each with its own memory.
//!
//! The layers run one after the other, so only one of the GPUs computes at a time, and moving a
//! layer to another GPU costs at most one hop. The search therefore sees only the first GPU, with
//! the capacity and the link bandwidth of all of them, and stays as small as with one GPU. Its
//! solution is dealt out over the GPUs afterwards. The search does not divide a layer between two
//! of them: as one device of two ranks they divide every matrix, which is another degree of tensor
//! parallelism.

use hwprofiles::{Bytes, DeviceId, Machine, MemoryId};

/// The identical GPUs and their memories. The first one represents all. Empty if the machine has
/// fewer than two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdenticalGpus {
    pub devices: Vec<DeviceId>,
    pub memories: Vec<MemoryId>,
}

impl IdenticalGpus {
    pub fn from_machine(machine: &Machine) -> Self {
        let devices = Some(machine.identical_gpus()).filter(|gpus| gpus.len() > 1).unwrap_or_default();
        let memories = devices.iter().map(|&id| machine.device(id).memory).collect();
        Self { devices, memories }
    }

    /// A machine without identical GPUs.
    pub fn none() -> Self {
        Self { devices: vec![], memories: vec![] }
    }

    /// Number of GPUs that one represents, 1 if there are no identical ones.
    pub fn count(&self) -> u64 {
        self.devices.len().max(1) as u64
    }

    /// The first GPU and its memory.
    pub fn first(&self) -> Option<(DeviceId, MemoryId)> {
        Some((*self.devices.first()?, *self.memories.first()?))
    }

    /// Whether another GPU represents this device.
    pub fn is_represented(&self, device: DeviceId) -> bool {
        self.devices.iter().skip(1).any(|&gpu| gpu == device)
    }

    /// Whether another memory represents this one.
    pub fn is_represented_memory(&self, memory: MemoryId) -> bool {
        self.memories.iter().skip(1).any(|&gpu| gpu == memory)
    }

    /// Number of memories that `memory` represents.
    pub fn represented_by(&self, memory: MemoryId) -> u64 {
        if self.memories.first() == Some(&memory) { self.count() } else { 1 }
    }

    /// Capacity of each memory. The first GPU's memory has the capacity of all of them.
    pub fn capacity(&self, machine: &Machine) -> Vec<Bytes> {
        self.capacity_less(machine, 0.0)
    }

    /// Capacity of each memory, with `share` of the GPUs' capacity left out.
    pub fn capacity_less(&self, machine: &Machine, share: f64) -> Vec<Bytes> {
        let held = |id: MemoryId| {
            let all = machine.memory(id).capacity.value * self.represented_by(id);
            match self.represented_by(id) {
                1 => all,
                _ => all.saturating_sub(Bytes::new((all.as_f64() * share) as u64)),
            }
        };
        machine.memory_ids().map(held).collect()
    }

    /// The machine in which the first GPU has the capacity of all of them, with `share` of it left
    /// out.
    pub fn pooled(&self, machine: &Machine, share: f64) -> Machine {
        let mut pooled = machine.clone();
        for (memory, capacity) in pooled.memories.iter_mut().zip(self.capacity_less(machine, share)) {
            memory.capacity.value = capacity;
        }
        pooled
    }
}
