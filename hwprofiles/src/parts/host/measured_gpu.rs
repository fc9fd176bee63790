//! A GPU as `fulcrum bench` measured it in a host: the part, the link to it, and the curves behind
//! them.

use crate::parts::gpu::GpuPart;
use crate::parts::link::LinkPart;
use crate::rates::{Curve, Direction, HostMemory};
use crate::units::{BytesPerSec, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// A measured GPU. A composition needs `part` and `link` alone. They lack a datasheet's numbers
/// that cannot be measured (peaks, price).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredGpu {
    /// Its measured rates. The bandwidth is that of the largest read. The time of a product, of
    /// attention and of a small kernel (`kernel`) is that in a replayed graph, which includes the
    /// start of each kernel, so `launch` is zero. Attention and small kernels are those of
    /// Fulcrum's executor, and so are products by packed weights. `issue` is the time that the host
    /// takes to launch the kernels of an operator ahead of the GPU: the mean over those of a layer.
    /// `sync` is the round trip of an empty kernel.
    pub part: GpuPart,
    /// The link to it. α comes from the smallest pinned transfer, β from the largest.
    pub link: LinkPart,
    /// The costs of starting work.
    pub launches: LaunchCosts,
    /// Reads of its memory, against the bytes read: all larger than the L2 cache.
    pub read: Curve<BytesPerSec>,
    /// Copies within its memory, against the bytes copied; read and written bytes both count.
    pub copy: Curve<BytesPerSec>,
    /// Transfers between the host's memory and its own, against the bytes sent each way.
    pub transfers: Vec<TransferCurve>,
}

/// The time of an empty kernel, by how it is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchCosts {
    /// Each kernel, launched by the host one after another.
    pub host: Sourced<Seconds>,
    /// Each kernel, as one node after another of a replayed graph.
    pub node: Sourced<Seconds>,
    /// A replay of a graph of one node, from the host's call until the host knows that it is done.
    pub replay: Sourced<Seconds>,
}

/// The rate of transfers of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferCurve {
    /// Which way.
    pub direction: Direction,
    /// The kind of host memory.
    pub host_memory: HostMemory,
    /// Bytes per second each way, against the bytes of one transfer.
    pub curve: Curve<BytesPerSec>,
}
