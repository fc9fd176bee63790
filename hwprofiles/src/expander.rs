//! Memory behind CXL, and what lies beside host memory: their way to the GPU.

use crate::compose::{DRAM, Expanders, add_links};
use crate::link_part::LinkPart;
use crate::machine::{Link, LinkDetails, Machine, Memory, MemoryDetails, MemoryId, MemoryKind};
use crate::parts::CxlPart;
use crate::provenance::Sourced;
use crate::units::BytesPerSec;

impl Expanders {
    pub(crate) fn add_to(&self, machine: &mut Machine) {
        let (part, count) = (&self.part, self.count);
        let all = |rate: &Sourced<BytesPerSec>| match count {
            1 => rate.clone(),
            _ => {
                let reason = format!("{count} × {} interleaved ({})", rate.value, rate.source);
                Sourced::estimated(rate.value * count as f64, &reason)
            }
        };
        let capacity = match count {
            1 => part.capacity.clone(),
            _ => {
                let reason = format!("{count} × {} ({})", part.capacity.value, part.capacity.source);
                Sourced::estimated(part.capacity.value * count, &reason)
            }
        };
        let (read, write) = (all(&part.read), part.write.as_ref().map(all));
        let id = MemoryId(machine.memories.len());
        machine.memories.push(Memory {
            name: "cxl".to_owned(),
            kind: MemoryKind::Cxl,
            capacity,
            bandwidth: read.clone(),
            latency: Some(part.latency.clone()),
            within: None,
            stripes: vec![],
            price_per_gb: part.price_per_gb.clone(),
            details: MemoryDetails {
                write: write.clone(),
                loaded: part.loaded.clone(),
                interleave: self.interleave,
            },
        });
        let unknown = || {
            let reason = format!("as its reads, {}: its writes are not known", read.value);
            Sourced::estimated(read.value, &reason)
        };
        let link = LinkPart::new("cxl", part.latency.clone(), write.unwrap_or_else(unknown), read.clone());
        add_links("cxl", id, &link, machine);
    }
}

/// Links between the memory `name`, which hangs on the host, and the GPUs': a DMA through the host's root complex,
/// which passes the GPU's wire but not DRAM. It is as fast as the slower of the two ways, and both delays add up.
pub(crate) fn add_direct_links(name: &str, machine: &mut Machine) {
    let Some(memory) = machine.memory_named(name) else { return };
    let hbm = |id: &MemoryId| machine.memory(*id).kind == MemoryKind::Hbm;
    for hbm in machine.memory_ids().filter(hbm).collect::<Vec<_>>() {
        let Some(link) = machine.link_between(DRAM, hbm) else { continue };
        let gpu = machine.link(link).name.split_once("->").map(|(_, gpu)| gpu.to_owned());
        let gpu = gpu.unwrap_or_else(|| machine.memory(hbm).name.clone());
        let ways = [(format!("{name}->{gpu}"), memory, hbm), (format!("{gpu}->{name}"), hbm, memory)];
        for (direct, from, to) in ways {
            add_direct_link(direct, from, to, from == memory, machine);
        }
    }
}

fn add_direct_link(name: String, from: MemoryId, to: MemoryId, second_is_wire: bool, machine: &mut Machine) {
    let (Some(first), Some(second)) = (machine.link_between(from, DRAM), machine.link_between(DRAM, to))
    else {
        return;
    };
    let wire = if second_is_wire { second } else { first };
    let (first, second) = (machine.link(first), machine.link(second));
    let slower = if second.bandwidth.value < first.bandwidth.value { second } else { first };
    let reason = format!("that of {}, the slower of {} and {}", slower.name, first.name, second.name);
    let bandwidth = Sourced::estimated(slower.bandwidth.value, &reason);
    let reason = format!("those of {} and {}", first.name, second.name);
    let latency = Sourced::estimated(first.latency.value + second.latency.value, &reason);
    let (wire, details) = (Some(wire), LinkDetails::default());
    machine.links.push(Link { name, from, to, latency, bandwidth, wire, details });
}

impl Machine {
    /// The machine with one CXL expander more, beside its host memory or, where it has some, interleaved with them;
    /// `None` where its first memory is not DRAM.
    pub fn with_expander(&self, part: &CxlPart) -> Option<Self> {
        let mut machine = self.clone();
        machine.memories.first().filter(|memory| memory.kind == MemoryKind::Dram)?;
        let Some(cxl) = machine.memories.iter().position(|memory| memory.kind == MemoryKind::Cxl) else {
            let name = "cxl";
            if machine.memory_named(name).is_some() {
                return None;
            }
            Expanders { part: part.clone(), count: 1, interleave: None }.add_to(&mut machine);
            add_direct_links(name, &mut machine);
            machine.stripe_over_cxl(None).ok()?;
            return Some(machine);
        };
        let memory = &mut machine.memories[cxl];
        let cxl = MemoryId(cxl);
        memory.capacity.value += part.capacity.value;
        memory.bandwidth.value += part.read.value;
        let written = part.write.as_ref().unwrap_or(&part.read).value;
        // Its links to the host carry more; those over another's wire as much more as the wire lets through.
        let wires: Vec<_> =
            machine.links.iter().map(|l| l.wire.map(|w| machine.link(w).bandwidth.value)).collect();
        for (link, wire) in machine.links.iter_mut().zip(wires) {
            let more = match (link.from == cxl, link.to == cxl) {
                (true, _) => part.read.value,
                (_, true) => written,
                _ => continue,
            };
            let rate = link.bandwidth.value + more;
            link.bandwidth.value = wire.map_or(rate, |wire| rate.min(wire).max(link.bandwidth.value));
        }
        machine.stripe_over_cxl(machine.memory(cxl).details.interleave).ok()?;
        Some(machine)
    }
}
