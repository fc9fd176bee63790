//! Disks.

use crate::machine::{Machine, Memory, MemoryDetails, MemoryId, MemoryKind};
use crate::parts::attach::add_links;
use crate::parts::link::LinkPart;
use crate::units::{Bytes, BytesPerSec, Dollars, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmePart {
    /// Its name, the first key of the file.
    pub nvme: String,
    /// A note for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How much it holds.
    #[serde(deserialize_with = "crate::units::checked")]
    pub capacity: Sourced<Bytes>,
    /// Rate of long sequential reads.
    #[serde(deserialize_with = "crate::units::checked")]
    pub read: Sourced<BytesPerSec>,
    /// Rate of long sequential writes.
    #[serde(deserialize_with = "crate::units::checked")]
    pub write: Sourced<BytesPerSec>,
    /// The time from a request until its first byte.
    #[serde(deserialize_with = "crate::units::checked")]
    pub latency: Sourced<Seconds>,
    /// Price per GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub price_per_gb: Option<Sourced<Dollars>>,
}

impl NvmePart {
    pub(crate) fn add_to(&self, machine: &mut Machine) {
        let id = MemoryId(machine.memories.len());
        machine.memories.push(Memory {
            name: "nvme".to_owned(),
            kind: MemoryKind::Nvme,
            capacity: self.capacity.clone(),
            bandwidth: self.read.clone(),
            latency: Some(self.latency.clone()),
            within: None,
            stripes: vec![],
            price_per_gb: self.price_per_gb.clone(),
            details: MemoryDetails { write: Some(self.write.clone()), ..MemoryDetails::default() },
        });
        let link = LinkPart::new("nvme", self.latency.clone(), self.write.clone(), self.read.clone());
        add_links("nvme", id, &link, machine);
    }
}
