//! Several GPUs of one kind in a machine. Each has its memory and its own link to the host, and all
//! are linked with each other. A GPU on the host's memory has no link.

use crate::machine::{DRAM, Link, LinkDetails, LinkId, Machine, Memory, MemoryDetails, MemoryId, MemoryKind};
use crate::parts::attach::add_links;
use crate::parts::gpu::sheet::GpuPart;
use crate::parts::link::LinkPart;
use crate::units::{BytesPerSec, Seconds, Sourced};

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

    /// Adds devices `gpu0`, `gpu1`, … with memories `hbm0`, `hbm1`, …; without a number where there
    /// is one.
    pub(crate) fn add_to(&self, machine: &mut Machine) {
        let Some(to_host) = &self.link else { return self.add_unified(machine) };
        let number = |index: u64| if self.count == 1 { String::new() } else { index.to_string() };
        let mut memories = Vec::new();
        for index in 0..self.count {
            let id = MemoryId(machine.memories.len());
            machine.memories.push(Memory {
                name: format!("hbm{}", number(index)),
                kind: MemoryKind::Hbm,
                capacity: self.part.allocatable(),
                bandwidth: self.part.reached_bandwidth(),
                latency: None,
                within: None,
                stripes: vec![],
                price_per_gb: None,
                details: MemoryDetails::default(),
            });
            let name = format!("gpu{}", number(index));
            let mut device = self.part.device(id);
            device.name.clone_from(&name);
            machine.devices.push(device);
            add_links(&name, id, to_host, machine);
            memories.push((name, id));
        }
        for (from_name, from) in &memories {
            for (to_name, to) in memories.iter().filter(|(_, to)| to != from) {
                let link = self.between(format!("{from_name}->{to_name}"), *from, *to, to_host, machine);
                machine.links.push(link);
            }
        }
    }

    /// Adds the device `gpu` on host memory, whose rate is that of its faster reader.
    fn add_unified(&self, machine: &mut Machine) {
        let (reached, dram) = (self.part.reached_bandwidth(), &mut machine.memories[DRAM.0]);
        if reached.value > dram.bandwidth.value {
            dram.bandwidth = reached;
        }
        machine.devices.push(self.part.device(DRAM));
    }

    /// From one GPU to another.
    fn between(
        &self,
        name: String,
        from: MemoryId,
        to: MemoryId,
        to_host: &LinkPart,
        machine: &Machine,
    ) -> Link {
        match &self.peer {
            Some(peer) => {
                let (latency, bandwidth) = (peer.latency.clone(), peer.to_device.clone());
                let details = LinkDetails {
                    part: Some(peer.link.clone()),
                    all_reduce: peer.all_reduce.clone(),
                    ..peer.details_to_device()
                };
                Link { name, from, to, latency, bandwidth, wire: None, details }
            }
            None => {
                let reason = format!("through the host, over {}", to_host.link);
                let rate = to_host.to_device.value.min(to_host.to_host.value);
                let bandwidth: Sourced<BytesPerSec> = Sourced::estimated(rate, &reason);
                let latency: Sourced<Seconds> = Sourced::estimated(to_host.latency.value, &reason);
                let wire: Option<LinkId> = machine.link_between(DRAM, to);
                let details = LinkDetails { part: Some(to_host.link.clone()), ..LinkDetails::default() };
                Link { name, from, to, latency, bandwidth, wire, details }
            }
        }
    }
}
