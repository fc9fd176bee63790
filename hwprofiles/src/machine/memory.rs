//! What stores, and how pages are spread over several memories.

use crate::rates::LoadCurve;
use crate::units::{Bytes, BytesPerSec, Dollars, Ratio, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// Index of a memory in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub usize);

/// Kinds of memories.
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
    /// Other memories whose pages take turns.
    Striped,
}

impl MemoryKind {
    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Hbm => "hbm",
            MemoryKind::Dram => "dram",
            MemoryKind::Cxl => "cxl",
            MemoryKind::Nvme => "nvme",
            MemoryKind::Loopback => "loopback",
            MemoryKind::Striped => "striped",
        }
    }
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
    /// The rate that all readers reach together.
    pub bandwidth: Sourced<BytesPerSec>,
    /// Load-to-use latency, where known.
    pub latency: Option<Sourced<Seconds>>,
    /// The memory whose bandwidth this one uses, where it has none of its own. Loopback memory lies
    /// in DRAM.
    pub within: Option<MemoryId>,
    /// The memories in which its pages lie in turn; empty for a plain memory. Capacity, rate and
    /// latency then follow from those memories ([`Machine::restripe`](crate::Machine::restripe)).
    pub stripes: Vec<Stripe>,
    /// Price per GB, where known.
    pub price_per_gb: Option<Sourced<Dollars>>,
    /// Further facts: the peak, the rate of writing, the latency under load. Stripes and engines
    /// use them.
    pub details: MemoryDetails,
}

/// Facts about a memory beyond its capacity, read bandwidth and unloaded latency.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryDetails {
    /// The peak rate of its channels, where `bandwidth` is a share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Sourced<BytesPerSec>>,
    /// What runs on this machine reached of the bandwidth that its parts promise; `bandwidth` is
    /// that already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Sourced<Ratio>>,
    /// Write bandwidth, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Sourced<BytesPerSec>>,
    /// Latency under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<LoadCurve>,
    /// How pages alternate between DRAM and this memory in stripes over both, where somebody chose
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleave: Option<Interleave>,
}

/// Weighted interleaving: some pages of DRAM, then some of the other memory, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interleave {
    /// Pages of DRAM.
    #[serde(deserialize_with = "crate::units::checked")]
    pub dram: u64,
    /// Pages of the other memory.
    #[serde(deserialize_with = "crate::units::checked")]
    pub cxl: u64,
}

impl Interleave {
    /// The rate of a stream over interleaved pages. Both memories work at once, and the one that
    /// finishes last decides: rate = min over memories of bandwidth ÷ share of the pages.
    pub fn bandwidth(self, dram: BytesPerSec, cxl: BytesPerSec) -> BytesPerSec {
        let pages = (self.dram + self.cxl) as f64;
        (dram * (pages / self.dram as f64)).min(cxl * (pages / self.cxl as f64))
    }
}

/// One memory's share of a striped memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// The memory.
    pub memory: MemoryId,
    /// How many pages in a row lie in it.
    pub pages: u64,
}

impl Interleave {
    /// The fewest pages with which a stream reaches 99 % of the best rate with up to 32 pages each.
    pub(crate) fn suited_to(dram: BytesPerSec, cxl: BytesPerSec) -> Self {
        let all = (1..=32u64).flat_map(|dram| (1..=32u64).map(move |cxl| Self { dram, cxl }));
        let rate = |pages: &Self| pages.bandwidth(dram, cxl);
        let best = all.clone().map(|pages| rate(&pages)).fold(BytesPerSec::ZERO, BytesPerSec::max);
        let good = all.filter(|pages| rate(pages) >= best * 0.99);
        good.min_by_key(|pages| (pages.dram + pages.cxl, pages.cxl)).unwrap_or(Self { dram: 1, cxl: 1 })
    }
}

/// Host memory is always the first memory of a composed machine.
pub(crate) const DRAM: MemoryId = MemoryId(0);
