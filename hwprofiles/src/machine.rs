//! A machine: devices that compute, memories that store, links between memories.

use crate::dtype::DType;
use crate::provenance::Sourced;
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{Bytes, BytesPerSec, Dollars, Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Index of a device in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub usize);

/// Index of a memory in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub usize);

/// Index of a link in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// What kind of thing computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// Cores of the host.
    Cpu,
    /// A GPU.
    Gpu,
    /// One pinned core of the host that plays a second device: own capacity-limited memory behind a rate-limited copy.
    Loopback,
}

/// What kind of thing stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// On-package memory of a GPU.
    Hbm,
    /// Host memory of one NUMA node.
    Dram,
    /// Memory behind CXL.
    Cxl,
    /// A disk.
    Nvme,
    /// The loopback device's share of the host's memory.
    Loopback,
}

/// Something that computes.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Its name in files.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its own memory: what it reads without a link.
    pub memory: MemoryId,
    /// The host cores it runs on; empty for a GPU.
    pub cores: Vec<usize>,
    /// Cost of starting one operator: a fork-join of the team, or a kernel launch.
    pub launch: Sourced<Seconds>,
    /// Time from another device's completion until this one runs: a wake-up, or a stream's wait for an event.
    pub sync: Sourced<Seconds>,
    /// Matrix products by weight format.
    pub gemm: BTreeMap<DType, GemmRates>,
    /// Attention by KV format.
    pub attention: BTreeMap<DType, AttentionRates>,
    /// Rate of norms, activations, additions: activation bytes read and written per second.
    pub elementwise: Sourced<BytesPerSec>,
    /// Draw when busy, where known.
    pub power: Option<Sourced<Watts>>,
    /// Price, where known.
    pub price: Option<Sourced<Dollars>>,
}

/// Something that stores.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Its name in files.
    pub name: String,
    /// Its kind.
    pub kind: MemoryKind,
    /// How much it holds.
    pub capacity: Sourced<Bytes>,
    /// The rate that all its readers together can reach.
    pub bandwidth: Sourced<BytesPerSec>,
    /// Load-to-use latency, where known.
    pub latency: Option<Sourced<Seconds>>,
    /// The memory whose bandwidth this one draws on, where it has none of its own (loopback memory lies in DRAM).
    pub within: Option<MemoryId>,
    /// Price per GB, where known.
    pub price_per_gb: Option<Sourced<Dollars>>,
}

/// A directed path between two memories. A transfer of B bytes takes latency + B / bandwidth when it is alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Its name in files.
    pub name: String,
    /// Where bytes come from.
    pub from: MemoryId,
    /// Where bytes go.
    pub to: MemoryId,
    /// α: time before the first byte.
    pub latency: Sourced<Seconds>,
    /// β: rate of a long transfer.
    pub bandwidth: Sourced<BytesPerSec>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// What computes, in the order of the file.
    pub devices: Vec<Device>,
    /// What stores, in the order of the file.
    pub memories: Vec<Memory>,
    /// The directed links, in the order of the file.
    pub links: Vec<Link>,
}

impl Machine {
    /// The device of that name.
    pub fn device_named(&self, name: &str) -> Option<DeviceId> {
        self.devices.iter().position(|d| d.name == name).map(DeviceId)
    }

    /// The memory of that name.
    pub fn memory_named(&self, name: &str) -> Option<MemoryId> {
        self.memories.iter().position(|m| m.name == name).map(MemoryId)
    }

    /// The device `id`.
    pub fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id.0]
    }

    /// The memory `id`.
    pub fn memory(&self, id: MemoryId) -> &Memory {
        &self.memories[id.0]
    }

    /// The link `id`.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    /// Every device, in order.
    pub fn device_ids(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..self.devices.len()).map(DeviceId)
    }

    /// Every memory, in order.
    pub fn memory_ids(&self) -> impl Iterator<Item = MemoryId> + use<> {
        (0..self.memories.len()).map(MemoryId)
    }

    /// The direct link between two memories, if there is one.
    pub fn link_between(&self, from: MemoryId, to: MemoryId) -> Option<LinkId> {
        self.links.iter().position(|l| l.from == from && l.to == to).map(LinkId)
    }

    /// The memory whose bandwidth reading `id` consumes: itself, or the one that it lies within.
    pub fn bandwidth_of(&self, id: MemoryId) -> MemoryId {
        let mut root = id;
        // A reader refuses cycles; the bound keeps a hand-made one from hanging.
        for _ in 0..self.memories.len() {
            match self.memories[root.0].within {
                Some(outer) => root = outer,
                None => break,
            }
        }
        root
    }
}
