//! Composition: from parts to a machine.

use crate::files::{Presence, ProfileError};
use crate::machine::{
    CeilingRates, DRAM, Device, DeviceDetails, DeviceKind, Machine, Memory, MemoryDetails, MemoryId,
    MemoryKind,
};
use crate::parts::attach::{add_direct_links, add_links};
use crate::parts::composition::LoopbackLimit;
use crate::parts::cpu_sheet::CpuSheet;
use crate::parts::cxl::CxlExpanders;
use crate::parts::dequantisation::host_dequantisation;
use crate::parts::gpu::{GpuGroup, add_gpus};
use crate::parts::host::{CoreTeam, Host};
use crate::parts::link::LinkPart;
use crate::parts::nvme::NvmePart;
use crate::parts::sockets::{add_far_links, add_sockets};
use crate::units::{Bytes, FlopPerSec, Seconds, Sourced};

/// The parts of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineParts {
    /// The host, or a datasheet CPU.
    pub base: MachineBase,
    /// The loopback device's limits, where there is one.
    pub loopback: Option<LoopbackLimit>,
    /// GPUs and their links, by kind.
    pub gpus: Vec<GpuGroup>,
    /// Memory behind CXL.
    pub cxl: Option<CxlExpanders>,
    /// A disk.
    pub nvme: Option<NvmePart>,
}

/// What a machine is built around.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineBase {
    /// A measured host.
    Host(Box<Host>),
    /// A CPU that is known from publications only.
    Sheet(Box<CpuSheet>),
    /// The same CPU with each socket as a device that has its own memory.
    Sockets {
        /// All of them.
        sheet: Box<CpuSheet>,
        /// The link between any two.
        link: Box<LinkPart>,
    },
}

impl MachineBase {
    /// The host's or the CPU's name.
    pub fn name(&self) -> &str {
        match self {
            MachineBase::Host(host) => &host.host,
            MachineBase::Sheet(sheet) | MachineBase::Sockets { sheet, .. } => &sheet.part.cpu,
        }
    }
}

impl MachineParts {
    /// The host alone.
    pub fn from_host(host: Host) -> Self {
        Self::from_base(MachineBase::Host(Box::new(host)))
    }

    /// The base alone.
    pub fn from_base(base: MachineBase) -> Self {
        Self { base, loopback: None, gpus: vec![], cxl: None, nvme: None }
    }

    /// The same parts with the GPU that was measured in the host, where there is one.
    pub fn with_own_gpu(self) -> Self {
        let gpu = match &self.base {
            MachineBase::Host(host) => {
                host.gpu.as_option().map(|gpu| GpuGroup::one(gpu.part.clone(), Some(gpu.link.clone())))
            }
            MachineBase::Sheet(_) | MachineBase::Sockets { .. } => None,
        };
        Self { gpus: gpu.into_iter().collect(), ..self }
    }

    /// The same parts with a loopback device.
    pub fn with_loopback(self, limit: LoopbackLimit) -> Self {
        Self { loopback: Some(limit), ..self }
    }

    /// The machine of these parts: devices `cpu`, `loopback`, `gpu` (`gpu0`, `gpu1`, … where there
    /// are several); memories `dram`, `loopback-memory`, `hbm`, `cxl`, `nvme`, and `dram+cxl`
    /// striped over both; links `dram->loopback`, `loopback->dram` and so on. The memories `cxl`
    /// and `nvme` reach the GPU directly, over the wire between host memory and the GPU. The CPU
    /// reads `cxl` and `dram+cxl` in place.
    ///
    /// Refuses a loopback on one core, on a datasheet CPU or where it was not measured; a loopback
    /// memory that leaves no host memory; a number of cores that was not measured as a team; and a
    /// datasheet CPU without the size of its memory.
    pub fn machine(&self, name: &str) -> Result<Machine, ProfileError> {
        let mut machine = Machine {
            name: name.to_owned(),
            note: None,
            assumed: Vec::new(),
            devices: Vec::new(),
            memories: Vec::new(),
            links: Vec::new(),
        };
        match &self.base {
            MachineBase::Host(host) => self.add_host(host, &mut machine)?,
            _ if self.loopback.is_some() => {
                let message = "it needs a measured host, as `cpu: this`: a datasheet's cores do not run";
                return Err(unfit("loopback", message.to_owned()));
            }
            MachineBase::Sockets { sheet, link } => add_sockets(sheet, link, &mut machine)?,
            MachineBase::Sheet(sheet) => {
                machine.memories.push(sheet.memory()?);
                machine.devices.push(sheet.device(DRAM)?);
            }
        }
        add_gpus(&self.gpus, &mut machine);
        if let MachineBase::Sockets { link, .. } = &self.base {
            let far: Vec<_> = self.gpus.iter().flat_map(GpuGroup::far_rates).collect();
            add_far_links(link, &far, &mut machine);
        }
        if let Some(expanders) = &self.cxl {
            expanders.add_to(&mut machine);
        }
        if let Some(nvme) = &self.nvme {
            nvme.add_to(&mut machine);
        }
        for memory in ["cxl", "nvme"] {
            add_direct_links(memory, &mut machine);
        }
        machine.stripe_over_cxl(self.cxl.as_ref().and_then(|expanders| expanders.interleave))?;
        Ok(machine)
    }

    fn add_host(&self, host: &Host, machine: &mut Machine) -> Result<(), ProfileError> {
        let (dram, cores) = (&host.dram, &host.cpu.cores);
        let lent = usize::from(self.loopback.is_some());
        let own = cores.len().saturating_sub(lent);
        if own == 0 {
            let message = format!("the host '{}' has one core: a loopback needs a second", host.host);
            return Err(unfit("loopback", message));
        }
        let team = team(host, own)?;
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
            stripes: vec![],
            price_per_gb: None,
            details: MemoryDetails::default(),
        });
        // Without a second device there is no wake-up to measure; a fork-join is the nearest cost.
        let sync = host.loopback.as_option().map_or(&team.launch, |loopback| &loopback.sync);
        machine.devices.push(host_device(
            "cpu",
            DeviceKind::Cpu,
            DRAM,
            cores[..own].to_vec(),
            (host, team),
            sync,
        ));
        if let Some(limit) = &self.loopback {
            add_loopback(host, *limit, machine)?;
        }
        Ok(())
    }
}

fn add_loopback(host: &Host, limit: LoopbackLimit, machine: &mut Machine) -> Result<(), ProfileError> {
    let measured = host.loopback.as_option().ok_or_else(|| {
        unfit("loopback", format!("the host '{}' says `loopback: absent`: it needs two cores", host.host))
    })?;
    let dram = &mut machine.memories[DRAM.0];
    // Two devices that multiply at once share the bandwidth that all cores reach when they multiply
    // together.
    if let Some(drawn) = host.product_bandwidth().filter(|drawn| drawn.value < dram.bandwidth.value) {
        dram.bandwidth = drawn;
    }
    let left = dram.capacity.value.saturating_sub(limit.memory);
    if left == Bytes::ZERO {
        let message = format!("{} of {} leaves the host none: lend less", limit.memory, dram.capacity.value);
        return Err(unfit("loopback.memory", message));
    }
    let reason = format!("{} less the {} lent to the loopback", dram.capacity.value, limit.memory);
    dram.capacity = Sourced::estimated(left, &reason);
    let memory = Memory {
        name: "loopback-memory".to_owned(),
        kind: MemoryKind::Loopback,
        capacity: Sourced::estimated(limit.memory, "the limit chosen in the composition"),
        within: Some(DRAM),
        stripes: vec![],
        price_per_gb: None,
        ..dram.clone()
    };
    let core = host.cpu.cores[host.cpu.cores.len() - 1..].to_vec();
    let id = MemoryId(machine.memories.len());
    machine.memories.push(memory);
    let device =
        host_device("loopback", DeviceKind::Loopback, id, core, (host, team(host, 1)?), &measured.sync);
    machine.devices.push(device);
    let bandwidth = if limit.bandwidth < measured.bandwidth.value {
        Sourced::estimated(limit.bandwidth, "the limit chosen in the composition")
    } else {
        measured.bandwidth.clone()
    };
    let link = LinkPart::new("loopback", measured.latency.clone(), bandwidth.clone(), bandwidth);
    add_links("loopback", id, &link, machine);
    Ok(())
}

fn team(host: &Host, threads: usize) -> Result<&CoreTeam, ProfileError> {
    host.team(threads).ok_or_else(|| {
        let known: Vec<_> = host.teams.iter().map(|t| t.threads.to_string()).collect();
        let message = format!(
            "a team of {threads} threads was not measured on '{}' (measured: {}); a loopback needs two \
                 cores and teams of one and of all cores but one: measure them with `fulcrum bench`",
            host.host,
            known.join(", ")
        );
        unfit("cpu", message)
    })
}

fn unfit(part: &str, message: String) -> ProfileError {
    ProfileError::Unfit { part: part.to_owned(), message }
}

fn host_device(
    name: &str,
    kind: DeviceKind,
    memory: MemoryId,
    cores: Vec<usize>,
    (host, team): (&Host, &CoreTeam),
    sync: &Sourced<Seconds>,
) -> Device {
    let cost = host_dequantisation(cores.len(), &host.cpu.features);
    Device {
        name: name.to_owned(),
        kind,
        memory,
        reads: vec![],
        cores,
        launch: team.launch.clone(),
        issue: None,
        sync: sync.clone(),
        gemm: team.gemm.clone(),
        attention: team.attention.clone(),
        elementwise: team.elementwise.clone(),
        power: None,
        idle_power: None,
        price: None,
        ranks: None,
        details: DeviceDetails { dequantisation: Some(cost), ..team_details(team) },
    }
}

fn team_details(team: &CoreTeam) -> DeviceDetails {
    let mut details = DeviceDetails { kernels: team.kernels.clone(), ..DeviceDetails::default() };
    for (&dtype, by_instructions) in &team.ceilings {
        for (instructions, measured) in by_instructions {
            let rate = |rate: &Presence<FlopPerSec>| {
                rate.as_option().map(|&value| Sourced { value, source: measured.source.clone() })
            };
            let ceilings = CeilingRates {
                resident: rate(&measured.resident),
                cached: rate(&measured.cached),
                streamed: rate(&measured.streamed),
            };
            details.ceilings.entry(dtype).or_default().insert(instructions.clone(), ceilings);
        }
    }
    for (&dtype, crossover) in &team.crossover {
        if let Presence::Present(value) = crossover.rows {
            details.crossover.insert(dtype, Sourced { value, source: crossover.source.clone() });
        }
    }
    details
}
