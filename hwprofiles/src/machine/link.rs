//! What carries bytes between two memories.

use crate::machine::memory::{Memory, MemoryId};
use crate::rates::{AllReduce, Curve};
use crate::units::{Bytes, BytesPerSec, Provenance, Ratio, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// Index of a link in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// A directed link between two memories. A transfer of B bytes alone on it takes latency + B /
/// bandwidth.
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
    /// The link in the same direction whose wire this one uses, where it has none of its own.
    /// Transfers of both share that link's bandwidth.
    pub wire: Option<LinkId>,
    /// Facts beyond α and β.
    pub details: LinkDetails,
}

/// Facts about a link beyond α and β. Those are for page-locked memory on the near socket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDetails {
    /// The name of the part of a link between GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The rate on the wire.
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
    /// The rate under opposing traffic divided by the rate alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<Sourced<Ratio>>,
    /// Bytes of host memory traffic per byte moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_traffic: Option<Sourced<Ratio>>,
    /// What all-reduces over GPUs that are linked this way take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_reduce: Option<AllReduce>,
}

impl Link {
    /// The link as it brings bytes from one of the memories to the other: as fast as the slowest of
    /// the three, unless it was measured between them.
    pub(crate) fn within<'m>(mut self, memories: impl IntoIterator<Item = &'m Memory>) -> Self {
        let link = &self.bandwidth;
        if matches!(link.source, Provenance::Measured { .. }) {
            return self;
        }
        let rate = |memory: &Memory| memory.bandwidth.value.get();
        let slowest = memories.into_iter().min_by(|a, b| rate(a).total_cmp(&rate(b)));
        if let Some(memory) = slowest.filter(|memory| memory.bandwidth.value < link.value) {
            let reason =
                format!("what '{}' gives of {} of the link ({})", memory.name, link.value, link.source);
            self.bandwidth = Sourced::estimated(memory.bandwidth.value, &reason);
        }
        self
    }

    /// The time of a transfer of `bytes` alone on the link: α + bytes / β; zero for no bytes.
    pub fn time(&self, bytes: Bytes) -> Seconds {
        if bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        self.latency.value + bytes / self.bandwidth.value
    }
}
