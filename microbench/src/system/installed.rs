//! The parts of this machine by their names, without measuring anything.

use crate::error::MeasureError;
use crate::system::dimms::{InstalledModules, installed_modules};
use crate::system::pci_link::{PciLink, pci_link};
use crate::system::{limits, processor};
use hwprofiles::{Bytes, Processor};
use kernels::affinity;
use kernels::cuda::{InstalledGpuFacts, installed_gpus};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The parts of this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct InstalledParts {
    /// The processor, with the cores that this process may use.
    pub processor: Processor,
    /// How many of it.
    pub sockets: u64,
    /// Memory that this process may use.
    pub memory: Bytes,
    /// The memory's modules, where the firmware's tables can be read.
    pub modules: Option<InstalledModules>,
    /// GPUs that NVIDIA's driver names.
    pub gpus: Vec<InstalledDevice>,
    /// Why there are no GPUs.
    pub no_gpus: Option<String>,
}

/// A GPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledDevice {
    /// Its name.
    pub name: String,
    /// The size of its memory.
    pub capacity: Bytes,
    /// Its link, where the system tells.
    pub link: Option<PciLink>,
}

/// Reads which parts this machine has.
///
/// # Errors
/// The operating system does not tell the processor or the memory.
pub fn installed_parts() -> Result<InstalledParts, MeasureError> {
    let root = Path::new("/");
    let (gpus, no_gpus) = match installed_gpus() {
        Ok(gpus) => (gpus, None),
        Err(error) => (vec![], Some(error.to_string())),
    };
    let device = |gpu: InstalledGpuFacts| InstalledDevice {
        link: pci_link(root, &gpu.bus),
        name: gpu.name,
        capacity: gpu.capacity,
    };
    Ok(InstalledParts {
        processor: processor::processor(root, &affinity::available_cores())?,
        sockets: sockets(root),
        memory: limits::capacity(root)?,
        modules: installed_modules(root),
        gpus: gpus.into_iter().map(device).collect(),
        no_gpus,
    })
}

/// Sockets by the packages that `/proc/cpuinfo` names; at least one.
fn sockets(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let packages: BTreeSet<_> = text.lines().filter(|line| line.starts_with("physical id")).collect();
    (packages.len() as u64).max(1)
}
