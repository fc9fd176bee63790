//! Links between a part's memory, host memory and GPUs.

use crate::machine::{DRAM, Link, LinkDetails, Machine, MemoryId, MemoryKind};
use crate::parts::link::LinkPart;
use crate::units::{BytesPerSec, Sourced};

pub(crate) fn add_links(name: &str, memory: MemoryId, link: &LinkPart, machine: &mut Machine) {
    let host = machine.memory(DRAM).name.clone();
    let mut add = |name: String, from, to, bandwidth: &Sourced<BytesPerSec>, details| {
        let (latency, bandwidth) = (link.latency.clone(), bandwidth.clone());
        let link = Link { name, from, to, latency, bandwidth, wire: None, details };
        let link = link.within([from, to].map(|end| machine.memory(end)));
        machine.links.push(link);
    };
    add(format!("{host}->{name}"), DRAM, memory, &link.to_device, link.details_to_device());
    add(format!("{name}->{host}"), memory, DRAM, &link.to_host, link.details_to_host());
}

/// Adds links between the memory `name`, which is attached to the host, and the GPUs' memories. A
/// DMA through the host's root complex uses the GPU's wire but not DRAM. It is as fast as the
/// slower of the two links, and their latencies add up.
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
    let Some(route) = machine.route(from, to) else { return };
    let [first, second] = route[..] else { return };
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
