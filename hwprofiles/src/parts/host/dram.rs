//! Main memory as measured: rates and latency, alone and under load, by page size and by kind of
//! access.

use crate::files::Presence;
use crate::rates::Curve;
use crate::units::{Bytes, BytesPerSec, Checked, Provenance, Seconds, Sourced, distinct, positive};
use serde::{Deserialize, Serialize};

/// Main memory, as measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dram {
    /// The size that a process may use.
    #[serde(deserialize_with = "crate::units::checked")]
    pub capacity: Sourced<Bytes>,
    /// Streams by kind and thread count, against the size of the arrays. `read` must be there.
    pub bandwidth: Vec<StreamCurve>,
    /// Time of one dependent random load, against the working set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Curve<Seconds>>,
    /// The same, past all caches, while other cores read.
    #[serde(default)]
    pub loaded_latency: Presence<LoadedLatency>,
    /// Reads and writes mixed, with ordinary and with non-temporal stores.
    #[serde(default)]
    pub mixes: Presence<ReadWriteMixes>,
    /// Base pages beside huge pages.
    #[serde(default, deserialize_with = "crate::units::checked")]
    pub pages: Presence<Vec<PageMode>>,
}

/// A memory stream. Per element it counts its size once for read and write, twice for copy, and
/// three times for triad, without write-allocate traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// Sum of an array.
    Read,
    /// Fill of an array.
    Write,
    /// b = a.
    Copy,
    /// a = b + s·c.
    Triad,
}

/// The bandwidth of one stream by one number of threads, against the bytes of all its arrays
/// together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamCurve {
    /// Which stream.
    pub stream: StreamKind,
    /// By how many pinned threads.
    #[serde(deserialize_with = "crate::units::checked")]
    pub threads: usize,
    /// The curve.
    pub curve: Curve<BytesPerSec>,
}

/// The latency of dependent random loads by one core while the others read memory at a given pace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedLatency {
    /// Where the points came from.
    pub source: Provenance,
    /// The number of threads that read, in addition to the one whose loads are timed.
    #[serde(deserialize_with = "crate::units::checked")]
    pub threads: usize,
    /// The points; at least one.
    #[serde(deserialize_with = "crate::units::checked")]
    pub points: Vec<LoadedPoint>,
}

/// One pace of the readers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedPoint {
    /// The pace, in percent of the readers' rate without a limit; 0 where they do not read.
    pub percent: u64,
    /// The rate at which they read.
    pub bandwidth: BytesPerSec,
    /// Time of one load.
    pub latency: Seconds,
}

/// Streams of several arrays that are read and one that is written, all past the caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadWriteMixes {
    /// Where the points came from.
    pub source: Provenance,
    /// By how many pinned threads.
    #[serde(deserialize_with = "crate::units::checked")]
    pub threads: usize,
    /// The points; at least one.
    #[serde(deserialize_with = "crate::units::checked")]
    pub points: Vec<ReadWriteMix>,
}

/// One mix. It counts the bytes that the program reads and writes, without the lines that ordinary
/// stores read first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadWriteMix {
    /// Read parts of the mix: `reads` to `writes` is the ratio of bytes.
    pub reads: u64,
    /// Written parts of the mix.
    pub writes: u64,
    /// How they are written.
    pub stores: StoreKind,
    /// Bytes read and written per second.
    pub rate: BytesPerSec,
}

/// How a program stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// Nothing is stored.
    None,
    /// Through the caches: a line is read before it is written.
    Ordinary,
    /// Around the caches.
    NonTemporal,
}

/// One request for pages: what the system gave, and how fast it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMode {
    /// What was asked for.
    pub asked: PageSize,
    /// Bytes of the arrays measured.
    #[serde(deserialize_with = "crate::units::checked")]
    pub size: Bytes,
    /// How many of them the system put into huge pages, by its own account of this mapping.
    pub huge: Sourced<Bytes>,
    /// The rate at which all cores read them.
    #[serde(deserialize_with = "crate::units::checked")]
    pub read: Sourced<BytesPerSec>,
    /// The time of one dependent random load from them, by one core.
    #[serde(deserialize_with = "crate::units::checked")]
    pub latency: Sourced<Seconds>,
}

/// The pages that a program asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageSize {
    /// The processor's smallest pages: 4 KiB on x86-64.
    Base,
    /// 2 MiB on x86-64.
    Huge,
}

impl PageSize {
    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            PageSize::Base => "base",
            PageSize::Huge => "huge",
        }
    }
}

impl Dram {
    /// Memory of this size, before anything else was measured.
    pub fn new(capacity: Sourced<Bytes>) -> Self {
        Self {
            capacity,
            bandwidth: Vec::new(),
            latency: None,
            loaded_latency: Presence::Absent,
            mixes: Presence::Absent,
            pages: Presence::Absent,
        }
    }

    /// The curve of a stream by exactly this many threads.
    pub fn stream(&self, stream: StreamKind, threads: usize) -> Option<&Curve<BytesPerSec>> {
        self.bandwidth.iter().find(|s| s.stream == stream && s.threads == threads).map(|s| &s.curve)
    }

    /// The rate at which the largest measured number of threads reads the largest measured arrays.
    /// All readers of the memory share it.
    pub fn read_bandwidth(&self) -> Option<Sourced<BytesPerSec>> {
        let reads = self.bandwidth.iter().filter(|s| s.stream == StreamKind::Read);
        let curve = &reads.max_by_key(|s| s.threads)?.curve;
        Some(Sourced { value: curve.at_largest()?, source: curve.source.clone() })
    }
}

impl Checked for Vec<LoadedPoint> {
    fn check(&self) -> Result<(), String> {
        for point in self {
            positive(&point.latency)?;
            if point.percent > 100 {
                return Err(format!("percent is {}, but at most 100 of 100 can be asked for", point.percent));
            }
            if point.percent > 0 {
                positive(&point.bandwidth)?;
            }
        }
        distinct(self.iter().map(|p| p.percent), "percent")
    }
}

impl Checked for Vec<ReadWriteMix> {
    fn check(&self) -> Result<(), String> {
        for point in self {
            positive(&point.rate)?;
            if (point.reads, point.writes) == (0, 0) {
                return Err("reads and writes are both 0: one must be above".to_owned());
            }
            if (point.writes == 0) != (point.stores == StoreKind::None) {
                return Err("`stores: none` is right where writes are 0, and only there".to_owned());
            }
        }
        distinct(self.iter().map(|p| (p.reads, p.writes, p.stores)), "reads, writes and stores")
    }
}

impl Checked for Vec<PageMode> {
    fn check(&self) -> Result<(), String> {
        if let Some(mode) = self.iter().find(|mode| mode.huge.value > mode.size) {
            return Err(format!(
                "{} of {} are in huge pages: at most all can be",
                mode.huge.value, mode.size
            ));
        }
        distinct(self.iter().map(|mode| mode.asked), "asked")
    }
}
