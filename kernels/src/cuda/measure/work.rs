//! What a GPU can be asked to do, and what it is.

use hwprofiles::units::Bytes;
use hwprofiles::{DType, Direction, HostMemory};
use std::fmt;

/// Work that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuWork {
    /// An empty kernel that the host launches, one after another without waiting.
    Launch,
    /// An empty kernel as one node after another of a replayed graph.
    Node,
    /// The replay of a graph of one empty kernel, waited for.
    Replay,
    /// The launch of an empty kernel on an idle GPU, waited for.
    RoundTrip,
    /// A read of so many bytes of the GPU's memory, other ones in every call.
    Read(Bytes),
    /// A copy of so many bytes within the GPU's memory, other ones in every call.
    Copy(Bytes),
    /// y[m, n] = x[m, k] · W[n, k]ᵀ of random values, as a node of a replayed graph. Every call has other weights, so
    /// that they come from the GPU's memory; x is the same, as after the operator that made it. The sum is float
    /// (`int8`: 32-bit integer); y is of x's format, but bf16 for `fp8` and 32-bit integers for `int8`. The two 8-bit
    /// formats are those of both operands, without scales; sums of `fp8` may be kept in fewer bits, as engines have it.
    Product {
        /// Format of x and W: `bf16`, `f16`, `fp8` (E4M3) or `int8`.
        dtype: DType,
        /// Rows of x.
        m: u64,
        /// Rows of W.
        n: u64,
        /// Columns of both.
        k: u64,
    },
    /// A transfer of so many bytes, each way.
    Transfer {
        /// Which way.
        direction: Direction,
        /// From or to which kind of host memory.
        memory: HostMemory,
        /// How many.
        bytes: Bytes,
    },
}

/// What a GPU says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// As it calls itself: "NVIDIA H200".
    pub name: String,
    /// Compute capability: (9, 0).
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u64,
    /// All of its memory.
    pub capacity: Bytes,
    /// Its last-level cache.
    pub l2: Bytes,
    /// Where it is on the PCI bus, as /sys names it: "0000:17:00.0".
    pub bus: String,
    /// The most bytes of a [`GpuWork::Read`].
    pub largest_read: Bytes,
    /// The most bytes of a [`GpuWork::Transfer`].
    pub largest_transfer: Bytes,
    /// Why there are no products; `None` where there are.
    pub no_products: Option<String>,
    /// How many GPUs there are; this is the first.
    pub count: usize,
}

/// What some work computed, at the value that is furthest from right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuCheck {
    /// What it computed.
    pub got: f64,
    /// What is right.
    pub wanted: f64,
    /// How far apart they may be.
    pub tolerance: f64,
}

impl fmt::Display for GpuWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuWork::Launch => f.write_str("launches of an empty kernel"),
            GpuWork::Node => f.write_str("nodes of a graph of empty kernels"),
            GpuWork::Replay => f.write_str("replays of a graph of one empty kernel"),
            GpuWork::RoundTrip => f.write_str("round trips of an empty kernel"),
            GpuWork::Read(bytes) => write!(f, "a read of {bytes} of GPU memory"),
            GpuWork::Copy(bytes) => write!(f, "a copy of {bytes} of GPU memory"),
            GpuWork::Product { dtype, m, n, k } => {
                write!(f, "a product of {m} × {n} × {k} in {dtype} on the GPU")
            }
            GpuWork::Transfer { direction, memory, bytes } => {
                let way = match direction {
                    Direction::ToDevice => "to the GPU",
                    Direction::ToHost => "from the GPU",
                    Direction::Both => "to and from the GPU at once",
                };
                let memory = match memory {
                    HostMemory::Pinned => "pinned",
                    HostMemory::Pageable => "pageable",
                };
                write!(f, "a transfer of {bytes} of {memory} memory {way}")
            }
        }
    }
}
