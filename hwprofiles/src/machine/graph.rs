//! A machine: devices that compute, memories that store, links between memories.

use crate::machine::device::{Device, DeviceId};
use crate::machine::link::{Link, LinkId};
use crate::machine::memory::{Memory, MemoryId};

/// A whole machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// A note for readers: which published testbed it is, and which of its numbers are unknown.
    pub note: Option<String>,
    /// What nobody said, and is assumed, where the machine was described in words. Files do not
    /// hold it.
    pub assumed: Vec<String>,
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

    /// The link whose wire `id` uses: itself, or the link whose wire it shares.
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

    /// The direct link between two memories, if there is one; see [`Machine::route`] for several
    /// links.
    pub fn link_between(&self, from: MemoryId, to: MemoryId) -> Option<LinkId> {
        self.links.iter().position(|l| l.from == from && l.to == to).map(LinkId)
    }

    /// The memory whose bandwidth is used by reading `id`: itself, or the memory that it lies
    /// within.
    pub fn bandwidth_owner(&self, id: MemoryId) -> MemoryId {
        let mut root = id;
        // The reader refuses cycles. The bound keeps a hand-made one from hanging the loop.
        for _ in 0..self.memories.len() {
            match self.memories[root.0].within {
                Some(outer) => root = outer,
                None => break,
            }
        }
        root
    }
}
