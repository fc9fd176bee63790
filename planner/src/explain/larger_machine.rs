//! Machines with more of one resource.

use hwprofiles::{Bound, Bytes, DeviceId, Library, LinkId, Machine, MemoryId, MemoryKind, Profile, Ratio};

/// The CXL memory that is tried where a machine has none.
const EXPANDER: &str = "samsung-128gb";

/// A resource that a machine could have more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// A memory's capacity.
    Capacity(MemoryId),
    /// A memory's bandwidth, with every rate of its device that this bandwidth limits.
    Bandwidth(MemoryId),
    /// A link's bandwidth.
    Link(LinkId),
    /// A device's matrix products and attention where arithmetic limits them.
    Arithmetic(DeviceId),
    /// A device's launches and wake-ups, which get shorter.
    Launches(DeviceId),
}

impl Resource {
    /// Every resource that `machine` could have more of.
    pub fn all(machine: &Machine) -> Vec<Self> {
        // A striped memory gains with the memories under it.
        let memories = || machine.memory_ids().filter(|&id| machine.memory(id).stripes.is_empty());
        // A memory within another has no bandwidth of its own.
        let rates = memories().filter(|&id| machine.bandwidth_owner(id) == id);
        let links = (0..machine.links.len()).map(LinkId);
        (memories().map(Self::Capacity))
            .chain(rates.map(Self::Bandwidth))
            .chain(links.map(Self::Link))
            .chain(machine.device_ids().map(Self::Arithmetic))
            .chain(machine.device_ids().map(Self::Launches))
            .collect()
    }

    /// Its name.
    pub fn name(self, machine: &Machine) -> String {
        match self {
            Self::Capacity(id) => format!("capacity of {}", machine.memory(id).name),
            Self::Bandwidth(id) => format!("bandwidth of {}", machine.memory(id).name),
            Self::Link(id) => format!("bandwidth of {}", machine.link(id).name),
            Self::Arithmetic(id) => format!("arithmetic of {}", machine.device(id).name),
            Self::Launches(id) => format!("launches and wake-ups of {}", machine.device(id).name),
        }
    }

    /// `machine` with `factor` times as much of it; launches get shorter by `factor`.
    pub fn more_of(self, machine: &Machine, factor: Ratio) -> Machine {
        let mut more = machine.clone();
        match self {
            Self::Capacity(MemoryId(id)) => {
                let capacity = &mut more.memories[id].capacity.value;
                *capacity = Bytes::new((capacity.as_f64() * factor.get()) as u64);
            }
            Self::Bandwidth(id) => {
                let rate = &mut more.memories[id.0].bandwidth.value;
                *rate = *rate * factor.get();
                for device in &mut more.devices {
                    if machine.bandwidth_owner(device.memory) == id {
                        *device = device.faster(Bound::Memory, factor);
                    }
                }
            }
            Self::Link(LinkId(id)) => {
                let rate = &mut more.links[id].bandwidth.value;
                *rate = *rate * factor.get();
            }
            Self::Arithmetic(DeviceId(id)) => {
                more.devices[id] = more.devices[id].faster(Bound::Compute, factor)
            }
            Self::Launches(DeviceId(id)) => more.devices[id] = more.devices[id].faster(Bound::Launch, factor),
        }
        more.restripe();
        more
    }
}

/// A whole part that a machine could have more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Accelerators with twice the memory.
    Accelerator,
    /// One more CXL card.
    Expander,
    /// Twice the DRAM.
    Dram,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Accelerator, Self::Expander, Self::Dram];

    /// `machine` with the part, and the part's name; `None` where the machine has no place for one.
    pub fn added_to(self, machine: &Machine) -> Option<(String, Machine)> {
        match self {
            Self::Accelerator => {
                let more = twice(machine, &[MemoryKind::Hbm, MemoryKind::Loopback])?;
                Some(("an accelerator with twice the memory".to_owned(), more))
            }
            Self::Expander => {
                let Ok(Profile::Cxl(part)) = Library::default().profile(EXPANDER) else { return None };
                let name = format!("one CXL card more ({}, {})", part.capacity.value, part.read.value);
                Some((name, machine.with_expander(&part)?))
            }
            Self::Dram => Some(("twice the DRAM".to_owned(), twice(machine, &[MemoryKind::Dram])?)),
        }
    }
}

/// `machine` with twice the capacity of memories of `kinds`; `None` where it has none.
fn twice(machine: &Machine, kinds: &[MemoryKind]) -> Option<Machine> {
    let mut more = machine.clone();
    for memory in more.memories.iter_mut().filter(|memory| kinds.contains(&memory.kind)) {
        memory.capacity.value = memory.capacity.value * 2;
    }
    more.restripe();
    (more != *machine).then_some(more)
}
