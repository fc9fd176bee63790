//! The sockets of a CPU as devices, each with its own memory and a link to every other one.

use crate::files::ProfileError;
use crate::machine::{DRAM, Link, LinkDetails, LinkId, Machine, Memory, MemoryId, MemoryKind};
use crate::parts::composition::DramChoice;
use crate::parts::cpu_sheet::CpuSheet;
use crate::parts::link::{DirectionRates, LinkPart};
use crate::units::{Bytes, BytesPerSec, Sourced};
use std::fmt;

impl CpuSheet {
    /// One socket, with its share of the cores and of the memory.
    fn one_socket(&self) -> Result<Self, ProfileError> {
        let sockets = self.sockets;
        let uneven = |cores: &u64| !cores.is_multiple_of(sockets);
        if let Some(cores) = self.cores.filter(uneven) {
            let message = format!("{cores} cores over {sockets} sockets: give each as many");
            return Err(ProfileError::Unfit { part: "cores".to_owned(), message });
        }
        let part = |of: &dyn fmt::Display| format!("one of {sockets} sockets, which have {of} together");
        let DramChoice { capacity, bandwidth, modules } = &self.dram;
        let dram = DramChoice {
            capacity: capacity
                .as_ref()
                .map(|all| Sourced::estimated(Bytes::new(all.value.get() / sockets), &part(&all.value))),
            bandwidth: bandwidth
                .as_ref()
                .map(|all| Sourced::estimated(all.value * (1.0 / sockets as f64), &part(&all.value))),
            modules: modules.clone(),
        };
        Ok(Self { sockets: 1, cores: self.cores.map(|cores| cores / sockets), dram, ..self.clone() })
    }
}

/// Adds devices `cpu0`, `cpu1`, … with memories `dram0`, `dram1`, … and links between them. All
/// other parts are attached to the first.
pub(crate) fn add_sockets(
    all: &CpuSheet,
    link: &LinkPart,
    machine: &mut Machine,
) -> Result<(), ProfileError> {
    let one = all.one_socket()?;
    for socket in 0..all.sockets {
        let id = MemoryId(machine.memories.len());
        machine.memories.push(Memory { name: format!("dram{socket}"), ..one.memory()? });
        let mut device = one.device(id)?;
        device.name = format!("cpu{socket}");
        let before = device.cores.len() * socket as usize;
        device.cores.iter_mut().for_each(|core| *core += before);
        machine.devices.push(device);
    }
    for from in machine.memory_ids() {
        for to in machine.memory_ids().filter(|&to| to != from) {
            let (rate, details) = match from < to {
                true => (&link.to_device, link.details_to_device()),
                false => (&link.to_host, link.details_to_host()),
            };
            let name = format!("{}->{}", machine.memory(from).name, machine.memory(to).name);
            let (latency, bandwidth) = (link.latency.clone(), rate.clone());
            machine.links.push(Link { name, from, to, latency, bandwidth, wire: None, details });
        }
    }
    Ok(())
}

/// Adds links between the memories of the other sockets and the GPUs, which are attached to the
/// first socket. They use the GPU's wire, at the rate that the link's part gives for the far socket
/// (`far`, by GPU), or else at most at the rate of the link between sockets.
pub(crate) fn add_far_links(link: &LinkPart, far: &[Option<&DirectionRates>], machine: &mut Machine) {
    let of_kind = |kind| -> Vec<MemoryId> {
        machine.memory_ids().filter(|&id| machine.memory(id).kind == kind && id != DRAM).collect()
    };
    let (sockets, gpus) = (of_kind(MemoryKind::Dram), of_kind(MemoryKind::Hbm));
    for &socket in &sockets {
        for (&gpu, far) in gpus.iter().zip(far) {
            for (from, to) in [(socket, gpu), (gpu, socket)] {
                let route = machine.route(from, to).unwrap_or_default();
                let at_gpu =
                    |link: &&LinkId| [machine.link(**link).from, machine.link(**link).to].contains(&gpu);
                let Some(&wire) = route.iter().find(at_gpu) else { continue };
                let far = far.map(|far| if to == gpu { &far.to_device } else { &far.to_host });
                let link = far_link(link, far, wire, (from, to), machine);
                machine.links.push(link);
            }
        }
    }
}

fn far_link(
    between: &LinkPart,
    far: Option<&Sourced<BytesPerSec>>,
    wire: LinkId,
    (from, to): (MemoryId, MemoryId),
    machine: &Machine,
) -> Link {
    let near = machine.link(wire);
    let ends = [machine.memory(from).name.as_str(), machine.memory(to).name.as_str()];
    // Links are named by devices.
    let named = |name: &str| name.replace("hbm", "gpu");
    let slower = near.bandwidth.value.min(between.to_device.value).min(between.to_host.value);
    let reason = format!("the slower of {} and {}", near.name, between.link);
    let bandwidth = far.cloned().unwrap_or_else(|| Sourced::estimated(slower, &reason));
    let reason = format!("those of {} and {}", near.name, between.link);
    Link {
        name: ends.map(named).join("->"),
        from,
        to,
        latency: Sourced::estimated(near.latency.value + between.latency.value, &reason),
        bandwidth,
        wire: Some(wire),
        details: LinkDetails::default(),
    }
}
