//! Composition: parts in, a machine out.
//!
//! ```yaml
//! parts:
//!   cpu: this                                   # a host: what `fulcrum bench` wrote, or a file
//!   loopback: {memory: 200 MB, bandwidth: 4 GB/s}
//! ```
//! The loopback device is the host's last core behind a copy that is slowed down to the bandwidth given;
//! the cpu device keeps the other cores. `gpu:` with `link:`, and `cxl:`, name parts of their own.

use crate::dtype::DType;
use crate::error::ProfileError;
use crate::host::{Host, Team};
use crate::machine::{Device, DeviceKind, Link, Machine, Memory, MemoryId, MemoryKind};
use crate::parts::{CxlPart, GpuPart, LinkPart};
use crate::provenance::Sourced;
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{Bytes, BytesPerSec, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A composition as written: parts by name. [`crate::Library::parts`] looks the names up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Composition {
    /// The name of the machine; without one it is made of the parts' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The parts.
    pub parts: PartNames,
}

/// The names of the parts of a machine: `this`, a shipped name, or a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartNames {
    /// The host.
    pub cpu: String,
    /// Lend the last core to a loopback device with so much memory behind so slow a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loopback: Option<LoopbackLimit>,
    /// A GPU; it needs a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The link to the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Memory behind CXL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cxl: Option<String>,
}

/// What the loopback device is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopbackLimit {
    /// Its memory, taken from the host's.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub memory: Bytes,
    /// The rate of its link, each way; what was measured where that is less.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub bandwidth: BytesPerSec,
}

/// The parts themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The host.
    pub host: Host,
    /// The loopback device's limits, where there is one.
    pub loopback: Option<LoopbackLimit>,
    /// A GPU and the link to it.
    pub gpu: Option<(GpuPart, LinkPart)>,
    /// Memory behind CXL.
    pub cxl: Option<CxlPart>,
}

/// Host memory is always the first.
const DRAM: MemoryId = MemoryId(0);

impl Parts {
    /// The host alone.
    pub fn of(host: Host) -> Self {
        Self { host, loopback: None, gpu: None, cxl: None }
    }

    /// The same with a loopback device.
    pub fn with_loopback(self, limit: LoopbackLimit) -> Self {
        Self { loopback: Some(limit), ..self }
    }

    /// The machine of these parts: devices `cpu`, `loopback`, `gpu`; memories `dram`, `loopback-memory`,
    /// `hbm`, `cxl`; links `dram->loopback`, `loopback->dram` and so on.
    ///
    /// Refuses a loopback on one core or where it was not measured, a loopback memory that leaves no host
    /// memory, and a number of cores that was not measured as a team.
    pub fn machine(&self, name: &str) -> Result<Machine, ProfileError> {
        let mut machine =
            Machine { name: name.to_owned(), devices: Vec::new(), memories: Vec::new(), links: Vec::new() };
        self.add_cpu(&mut machine)?;
        if let Some(limit) = &self.loopback {
            self.add_loopback(*limit, &mut machine)?;
        }
        if let Some((gpu, link)) = &self.gpu {
            add_gpu(gpu, link, &mut machine);
        }
        if let Some(cxl) = &self.cxl {
            add_cxl(cxl, &mut machine);
        }
        Ok(machine)
    }

    fn add_cpu(&self, machine: &mut Machine) -> Result<(), ProfileError> {
        let (dram, cores) = (&self.host.dram, &self.host.cpu.cores);
        let lent = usize::from(self.loopback.is_some());
        let own = cores.len().saturating_sub(lent);
        if own == 0 {
            let message = format!("the host '{}' has one core: a loopback needs a second", self.host.host);
            return Err(unfit("loopback", message));
        }
        let team = self.team(own)?;
        let bandwidth = dram.read_bandwidth().ok_or_else(|| {
            unfit("cpu", "the host has no read bandwidth: measure it with `fulcrum bench`".into())
        })?;
        let latency = dram
            .latency
            .as_ref()
            .and_then(|curve| Some(Sourced { value: curve.at_largest()?, source: curve.source.clone() }));
        machine.memories.push(Memory {
            name: "dram".to_owned(),
            kind: MemoryKind::Dram,
            capacity: dram.capacity.clone(),
            bandwidth,
            latency,
            within: None,
            price_per_gb: None,
        });
        // Without a second device nothing waits for another; a fork-join is the nearest measured cost.
        let sync = self.host.loopback.as_option().map_or(&team.launch, |loopback| &loopback.sync);
        machine.devices.push(host_device("cpu", DeviceKind::Cpu, DRAM, cores[..own].to_vec(), team, sync));
        Ok(())
    }

    fn add_loopback(&self, limit: LoopbackLimit, machine: &mut Machine) -> Result<(), ProfileError> {
        let measured = self.host.loopback.as_option().ok_or_else(|| {
            unfit(
                "loopback",
                format!("the host '{}' says `loopback: absent`: it needs two cores", self.host.host),
            )
        })?;
        let dram = &mut machine.memories[DRAM.0];
        let left = dram.capacity.value.saturating_sub(limit.memory);
        if left == Bytes::ZERO {
            let message =
                format!("{} of {} leaves the host none: lend less", limit.memory, dram.capacity.value);
            return Err(unfit("loopback.memory", message));
        }
        let reason = format!("{} less the {} lent to the loopback", dram.capacity.value, limit.memory);
        dram.capacity = Sourced::estimated(left, &reason);
        let memory = Memory {
            name: "loopback-memory".to_owned(),
            kind: MemoryKind::Loopback,
            capacity: Sourced::estimated(limit.memory, "the limit chosen in the composition"),
            within: Some(DRAM),
            price_per_gb: None,
            ..dram.clone()
        };
        let core = self.host.cpu.cores[self.host.cpu.cores.len() - 1..].to_vec();
        let id = MemoryId(machine.memories.len());
        machine.memories.push(memory);
        let device = host_device("loopback", DeviceKind::Loopback, id, core, self.team(1)?, &measured.sync);
        machine.devices.push(device);
        let bandwidth = if limit.bandwidth < measured.bandwidth.value {
            Sourced::estimated(limit.bandwidth, "the limit chosen in the composition")
        } else {
            measured.bandwidth.clone()
        };
        add_links("loopback", id, &measured.latency, &bandwidth, &bandwidth, machine);
        Ok(())
    }

    fn team(&self, threads: usize) -> Result<&Team, ProfileError> {
        self.host.team(threads).ok_or_else(|| {
            let known: Vec<_> = self.host.teams.iter().map(|t| t.threads.to_string()).collect();
            let message = format!(
                "a team of {threads} threads was not measured on '{}' (measured: {}); a loopback needs two \
                 cores and teams of one and of all cores but one: measure them with `fulcrum bench`",
                self.host.host,
                known.join(", ")
            );
            unfit("cpu", message)
        })
    }
}

fn unfit(part: &str, message: String) -> ProfileError {
    ProfileError::Unfit { part: part.to_owned(), message }
}

fn host_device(
    name: &str,
    kind: DeviceKind,
    memory: MemoryId,
    cores: Vec<usize>,
    team: &Team,
    sync: &Sourced<Seconds>,
) -> Device {
    Device {
        name: name.to_owned(),
        kind,
        memory,
        cores,
        launch: team.launch.clone(),
        sync: sync.clone(),
        gemm: team.gemm.clone(),
        attention: team.attention.clone(),
        elementwise: team.elementwise.clone(),
        power: None,
        price: None,
    }
}

fn add_links(
    name: &str,
    memory: MemoryId,
    latency: &Sourced<Seconds>,
    there: &Sourced<BytesPerSec>,
    back: &Sourced<BytesPerSec>,
    machine: &mut Machine,
) {
    let mut add = |name: String, from, to, bandwidth: &Sourced<BytesPerSec>| {
        let link = Link { name, from, to, latency: latency.clone(), bandwidth: bandwidth.clone() };
        machine.links.push(link);
    };
    add(format!("dram->{name}"), DRAM, memory, there);
    add(format!("{name}->dram"), memory, DRAM, back);
}

fn add_gpu(gpu: &GpuPart, link: &LinkPart, machine: &mut Machine) {
    let id = MemoryId(machine.memories.len());
    let bandwidth = gpu.reached_bandwidth();
    machine.memories.push(Memory {
        name: "hbm".to_owned(),
        kind: MemoryKind::Hbm,
        capacity: gpu.capacity.clone(),
        bandwidth: bandwidth.clone(),
        latency: None,
        within: None,
        price_per_gb: None,
    });
    let (mut gemm, mut attention) = (BTreeMap::new(), BTreeMap::new());
    for dtype in DType::ALL {
        if let Some(peak) = gpu.reached_peak(dtype) {
            gemm.insert(dtype, GemmRates::roofline(dtype, peak.value, bandwidth.value, peak.source.clone()));
            let rates = AttentionRates::roofline(peak.value, bandwidth.value, peak.source);
            attention.insert(dtype, rates);
        }
    }
    gemm.extend(gpu.gemm.clone());
    attention.extend(gpu.attention.clone());
    machine.devices.push(Device {
        name: "gpu".to_owned(),
        kind: DeviceKind::Gpu,
        memory: id,
        cores: Vec::new(),
        launch: gpu.launch.clone(),
        sync: gpu.sync.clone(),
        gemm,
        attention,
        elementwise: bandwidth,
        power: gpu.power.clone(),
        price: gpu.price.clone(),
    });
    add_links("gpu", id, &link.latency, &link.to_device, &link.to_host, machine);
}

fn add_cxl(cxl: &CxlPart, machine: &mut Machine) {
    let id = MemoryId(machine.memories.len());
    machine.memories.push(Memory {
        name: "cxl".to_owned(),
        kind: MemoryKind::Cxl,
        capacity: cxl.capacity.clone(),
        bandwidth: cxl.bandwidth.clone(),
        latency: Some(cxl.latency.clone()),
        within: None,
        price_per_gb: cxl.price_per_gb.clone(),
    });
    add_links("cxl", id, &cxl.latency, &cxl.bandwidth, &cxl.bandwidth, machine);
}
