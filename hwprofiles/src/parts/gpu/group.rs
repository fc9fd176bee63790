//! The GPUs of a machine. Each has its memory and its own link to the host, and all are linked with
//! each other. A GPU on the host's memory has no link.

use crate::machine::{DRAM, Device, Link, LinkDetails, Machine, Memory, MemoryDetails, MemoryId, MemoryKind};
use crate::parts::attach::add_links;
use crate::parts::gpu::sheet::GpuPart;
use crate::parts::link::{DirectionRates, LinkPart};
use crate::units::Sourced;
use std::iter;

/// GPUs of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuGroup {
    /// One of them.
    pub part: GpuPart,
    /// The link of each to the host; none on the host's memory.
    pub link: Option<LinkPart>,
    /// How many.
    pub count: u64,
    /// The link between any two of them; where absent, they use their links to the host.
    pub peer: Option<LinkPart>,
}

impl GpuGroup {
    /// One GPU.
    pub fn one(part: GpuPart, link: Option<LinkPart>) -> Self {
        Self { part, link, count: 1, peer: None }
    }

    /// What the link of each reaches on memory of another socket.
    pub(crate) fn far_rates(&self) -> impl Iterator<Item = Option<&DirectionRates>> {
        let far = self.link.as_ref().and_then(|link| link.far.as_ref());
        iter::repeat_n(far, self.count as usize)
    }

    /// Adds the device `gpu` on host memory, whose rate is that of its faster reader.
    fn add_unified(&self, machine: &mut Machine) {
        let (reached, dram) = (self.part.reached_bandwidth(), &mut machine.memories[DRAM.0]);
        if reached.value > dram.bandwidth.value {
            dram.bandwidth = reached;
        }
        machine.devices.push(self.part.device(DRAM));
    }
}

/// Adds devices `gpu0`, `gpu1`, … with memories `hbm0`, `hbm1`, …, over all kinds; without a number
/// where there is one.
pub(crate) fn add_gpus(groups: &[GpuGroup], machine: &mut Machine) {
    let several = groups.iter().map(|group| group.count).sum::<u64>() > 1;
    let mut added: Vec<AddedGpu<'_>> = Vec::new();
    for group in groups {
        let Some(to_host) = &group.link else {
            group.add_unified(machine);
            continue;
        };
        for _ in 0..group.count {
            let number = if several { added.len().to_string() } else { String::new() };
            let id = MemoryId(machine.memories.len());
            machine.memories.push(Memory {
                name: format!("hbm{number}"),
                kind: MemoryKind::Hbm,
                capacity: group.part.allocatable(),
                bandwidth: group.part.reached_bandwidth(),
                latency: None,
                within: None,
                stripes: vec![],
                price_per_gb: None,
                details: MemoryDetails::default(),
            });
            let name = format!("gpu{number}");
            machine.devices.push(Device { name: name.clone(), ..group.part.device(id) });
            add_links(&name, id, to_host, machine);
            added.push(AddedGpu { name, memory: id, group, to_host });
        }
    }
    for from in &added {
        for to in added.iter().filter(|to| to.memory != from.memory) {
            machine.links.push(from.link_to(to, machine));
        }
    }
}

/// A GPU with a memory of its own.
struct AddedGpu<'g> {
    name: String,
    memory: MemoryId,
    group: &'g GpuGroup,
    to_host: &'g LinkPart,
}

impl AddedGpu<'_> {
    /// The link to another GPU: that of their kind, or through the host, at the rate of the slower
    /// of both links.
    fn link_to(&self, other: &Self, machine: &Machine) -> Link {
        let (name, from, to) = (format!("{}->{}", self.name, other.name), self.memory, other.memory);
        let of_a_kind = std::ptr::eq(self.group, other.group);
        if let Some(peer) = self.group.peer.as_ref().filter(|_| of_a_kind) {
            let (latency, bandwidth) = (peer.latency.clone(), peer.to_device.clone());
            let details = LinkDetails {
                part: Some(peer.link.clone()),
                all_reduce: peer.all_reduce.clone(),
                ..peer.details_to_device()
            };
            return Link { name, from, to, latency, bandwidth, wire: None, details };
        }
        let rate = |link: &LinkPart| link.to_device.value.min(link.to_host.value);
        let slower = if rate(self.to_host) < rate(other.to_host) { self.to_host } else { other.to_host };
        let reason = format!("through the host, over {}", slower.link);
        let latency = self.to_host.latency.value.max(other.to_host.latency.value);
        Link {
            name,
            from,
            to,
            latency: Sourced::estimated(latency, &reason),
            bandwidth: Sourced::estimated(rate(slower), &reason),
            wire: machine.link_between(DRAM, to),
            details: LinkDetails { part: Some(slower.link.clone()), ..LinkDetails::default() },
        }
    }
}
