//! Transfers between the host's memory and a device's memory, as they are measured.

use crate::units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

/// Which way a transfer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the host's memory.
    ToDevice,
    /// To the host's memory.
    ToHost,
    /// The same number of bytes both ways at once.
    Both,
}

/// Whether the operating system may move the host's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostMemory {
    /// Page-locked: the GPU reads and writes it by itself.
    Pinned,
    /// Ordinary: the driver copies through a buffer of its own.
    Pageable,
}

/// A measured transfer over the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferPoint {
    /// Which way.
    pub direction: Direction,
    /// The kind of host memory.
    pub memory: HostMemory,
    /// Bytes each way.
    pub bytes: Bytes,
    /// How long it took.
    pub time: Seconds,
}
