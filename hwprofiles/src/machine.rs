//! A machine: devices that compute, memories that store, links between memories.

use crate::all_reduce::AllReduce;
use crate::attention::AttentionRates;
use crate::curve::Curve;
use crate::dtype::DType;
use crate::gemm::GemmRates;
use crate::parts::LoadCurve;
use crate::provenance::Sourced;
use crate::ratio::Ratio;
use crate::stripes::Stripe;
use crate::tensor_parallel::Ranks;
use crate::units::{Bytes, BytesPerSec, Dollars, FlopPerSec, Seconds, Watts, Years};
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
    /// Other memories, their pages in turn.
    Striped,
}

/// Something that computes.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Its name in files.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its own memory: what it reads without a link, and where its buffers are.
    pub memory: MemoryId,
    /// What it reads and writes in place besides, without a link or a copy: memory behind CXL, stripes over it.
    pub reads: Vec<MemoryId>,
    /// The host cores it runs on; empty for a GPU.
    pub cores: Vec<usize>,
    /// Cost of starting one operator: a fork-join of the team, or a kernel launch.
    pub launch: Sourced<Seconds>,
    /// Time in which the host issues one kernel, where it does so kernel by kernel, ahead of the device: a kernel begins
    /// when it was issued and the one before it has ended. Absent where nobody has to, as in a replayed graph.
    pub issue: Option<Sourced<Seconds>>,
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
    /// Draw while it waits, where known.
    pub idle_power: Option<Sourced<Watts>>,
    /// Price, where known.
    pub price: Option<Sourced<Dollars>>,
    /// Where it is several GPUs that compute as one: how many, and how they add up. Rates are those of one of them.
    pub ranks: Option<Ranks>,
    /// What no time is made of yet.
    pub details: DeviceDetails,
}

/// What is known of a device beyond its rates: what a CPU's were made of, how long it serves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceDetails {
    /// The ceilings of its matrix products, by weight format and instruction set (`avx512`, `amx`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ceilings: BTreeMap<DType, BTreeMap<String, CeilingRates>>,
    /// Rows from which the wider instruction set is faster, by weight format.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crossover: BTreeMap<DType, Sourced<u64>>,
    /// Time in service over which the price is written off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Sourced<Years>>,
    /// The kernels that its rates were measured with, where it was measured by ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
}

/// What matrix products reach at most, by where their operands come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CeilingRates {
    /// From registers or tiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<Sourced<FlopPerSec>>,
    /// From the cores' own caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Sourced<FlopPerSec>>,
    /// Weights from memory, many rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamed: Option<Sourced<FlopPerSec>>,
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
    /// The memories that its pages lie in, in turn; empty where it is a memory by itself. Then its capacity, rate and
    /// latency follow from theirs ([`Machine::restripe`]).
    pub stripes: Vec<Stripe>,
    /// Price per GB, where known.
    pub price_per_gb: Option<Sourced<Dollars>>,
    /// What no time is made of yet.
    pub details: MemoryDetails,
}

/// What is known of a memory beyond its capacity, read bandwidth and unloaded latency.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryDetails {
    /// Write bandwidth, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Sourced<BytesPerSec>>,
    /// Latency under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<LoadCurve>,
    /// Pages of DRAM to pages of this memory in stripes over both, where somebody chose them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleave: Option<Interleave>,
}

/// Weighted interleaving: so many pages of DRAM, then so many of the other memory, and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interleave {
    /// Pages of DRAM.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub dram: u64,
    /// Pages of the other memory.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub cxl: u64,
}

impl Interleave {
    /// The rate of a stream over pages interleaved so: both memories work at once, and the one that is done
    /// last decides. Rate = min over memories of bandwidth ÷ share of the pages.
    pub fn bandwidth(self, dram: BytesPerSec, cxl: BytesPerSec) -> BytesPerSec {
        let pages = (self.dram + self.cxl) as f64;
        (dram * (pages / self.dram as f64)).min(cxl * (pages / self.cxl as f64))
    }
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
    /// The link over whose wire it goes, in the same direction, where it has none of its own: transfers of both
    /// share that link's bandwidth.
    pub wire: Option<LinkId>,
    /// What is known beyond α and β.
    pub details: LinkDetails,
}

/// What is known of a link beyond α and β, which are those of page-locked memory on the near socket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDetails {
    /// On the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Sourced<BytesPerSec>>,
    /// Measured times against bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Curve<Seconds>>,
    /// β of host memory that is not page-locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pageable: Option<Sourced<BytesPerSec>>,
    /// β of page-locked memory on the other socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<Sourced<BytesPerSec>>,
    /// The rate under opposing traffic over the rate alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<Sourced<Ratio>>,
    /// Bytes of host memory traffic per byte moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_traffic: Option<Sourced<Ratio>>,
    /// What sums over GPUs that are linked so take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_reduce: Option<AllReduce>,
}

impl Link {
    /// The time of a transfer of `bytes` by the link's curve of measured times; `None` where it has none.
    ///
    /// Linear in bytes between measured points; below the smallest its time, beyond the largest its rate.
    pub fn measured_time(&self, bytes: Bytes) -> Option<Seconds> {
        self.details.times.as_ref()?.time_of(bytes)
    }
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// What a reader should know of it: of which published testbed it is made, and what of that is unknown.
    pub note: Option<String>,
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

    /// The link whose wire `id` goes over: itself, or the one that it shares the wire of.
    pub fn wire(&self, id: LinkId) -> LinkId {
        self.links[id.0].wire.unwrap_or(id)
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
