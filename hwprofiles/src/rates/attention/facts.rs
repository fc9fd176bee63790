//! What a fit needs to know of a device.

use crate::units::{Bytes, BytesPerSec, FlopPerSec};
use serde::{Deserialize, Serialize};

/// What the datasheet says of a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionFacts {
    /// Dense peak rate of the format of the keys and values.
    #[serde(deserialize_with = "crate::units::checked")]
    pub peak: FlopPerSec,
    /// Peak bandwidth of the device's memory.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: BytesPerSec,
    /// Multiprocessors that tiles are dealt to.
    #[serde(deserialize_with = "crate::units::checked")]
    pub multiprocessors: u64,
    /// The cache that all multiprocessors share.
    #[serde(deserialize_with = "crate::units::checked")]
    pub l2: Bytes,
    /// The family of kernels that runs on it.
    pub kernels: AttentionKernels,
}

/// The family of kernels, which decides how work is cut into tiles. Measurements at one head shape
/// do not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKernels {
    /// FlashAttention 2 on a datacenter GPU: tiles of 128 queries of one head. Only decode packs
    /// the queries of a group into one tile, by a separate copy, and only packed queries have their
    /// KV split.
    Flash2,
    /// The same, with tiles of 64 queries where heads have 128 values or more: GPUs with 100 KiB of
    /// shared memory.
    Flash2Small,
    /// FlashAttention 3 on Hopper: it always packs the queries of a group, always splits KV, and
    /// schedules sequences one by one.
    Flash3,
    /// Kernels of datacenter Blackwell: tiles of 128 queries of one head in prefill, and KV always
    /// split in decode.
    Blackwell,
}

/// The sums of a tile: 128 queries of heads of 128 values.
const SUMS: u64 = 128 * 128;

/// The shortest tile of a matrix instruction's rows.
const FEWEST_QUERIES: u64 = 16;

/// The rows of Hopper's and Blackwell's matrix instructions.
const MATRIX_ROWS: f64 = 64.0;

/// The rate of tiles of 64 queries as a share of that of 128: heads of 256 values on a B200. Those
/// of 512 on an H100, an H200 and a B200 reach half of it.
const SHORT_TILE: f64 = 0.8;

impl AttentionKernels {
    pub(crate) fn for_compute_capability(capability: Option<&str>) -> Self {
        match capability {
            Some("9.0") => Self::Flash3,
            Some("10.0" | "10.3") => Self::Blackwell,
            Some("8.6" | "8.9" | "12.0") => Self::Flash2Small,
            _ => Self::Flash2,
        }
    }

    /// Queries of a tile. The sums of wider heads than kernels are made for fill the registers, or
    /// Blackwell's memory for them, with fewer queries.
    pub(crate) fn tile(self, head_dim: u64) -> u64 {
        if head_dim > self.widest_head() {
            return (SUMS / head_dim).max(FEWEST_QUERIES);
        }
        if self == Self::Flash2Small && head_dim >= 128 { 64 } else { 128 }
    }

    /// The widest head whose tiles are as long as those of others.
    fn widest_head(self) -> u64 {
        if self == Self::Blackwell { 192 } else { 256 }
    }

    /// The share of the rate of usual tiles that shorter ones reach: keys are loaded for fewer
    /// queries, and instructions of matrix units take 64 rows.
    pub(crate) fn short_tile_share(self, head_dim: u64) -> f64 {
        match head_dim > self.widest_head() {
            true => SHORT_TILE * (self.tile(head_dim) as f64 / MATRIX_ROWS).min(1.0),
            false => 1.0,
        }
    }

    /// Whether decodes run a kernel that takes the KV heads of all sequences one after the other:
    /// with heads of 512 values. Latent vectors, which stand as heads of half their numbers, have
    /// kernels of their own.
    pub(crate) fn decodes_in_turn(self, head_dim: u64) -> bool {
        self == Self::Flash3 && head_dim >= 2 * self.widest_head()
    }

    /// Whether the queries of a group share tiles in prefill.
    pub(crate) fn packs(self) -> bool {
        self == Self::Flash3
    }

    /// Whether a decode packs the queries of a group by a copy, and does not split the KV of groups
    /// of one.
    pub(crate) fn packs_by_copy(self) -> bool {
        matches!(self, Self::Flash2 | Self::Flash2Small)
    }

    /// The exponentials' share of a tile's time at 128 values per head. On all these GPUs a
    /// multiprocessor computes 16 exponentials per clock, and 512 (Ada), 1024 (Ampere), 2048
    /// (Hopper) or 4096 (Blackwell) multiply-adds: 1 ÷ 16 beside 256 ÷ so many gives 0.11, 0.2,
    /// 0.33 and 0.5. Why Ada and Hopper have a little more is not known.
    pub(crate) fn softmax_share(self) -> f64 {
        match self {
            Self::Flash2Small => 0.12,
            Self::Flash2 => 0.2,
            Self::Flash3 => 0.36,
            Self::Blackwell => 0.5,
        }
    }
}
