//! The work that can be timed on a GPU, and the GPU's properties.

use hwprofiles::units::Bytes;
use hwprofiles::{AttentionShape, DType, Direction, HostMemory};
use std::fmt;

/// Work that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuWork {
    /// Empty kernels that the host launches one after another without waiting.
    Launch,
    /// Empty kernels as consecutive nodes of a replayed graph.
    Node,
    /// The replay of a graph of one empty kernel, with a wait.
    Replay,
    /// The launch of an empty kernel on an idle GPU, with a wait.
    RoundTrip,
    /// A read of this number of bytes of the GPU's memory, other bytes in every call.
    Read(Bytes),
    /// A copy of this number of bytes within the GPU's memory, other bytes in every call.
    Copy(Bytes),
    /// y[m, n] = x[m, k] · W[n, k]ᵀ of random values, as a node of a replayed graph. Every call has
    /// other weights, so that they come from the GPU's memory; x is the same, because in a model
    /// the previous operator has just written it. Sums are floats (for `int8` 32-bit integers). y
    /// has x's format, except that it is bf16 for `fp8` and 32-bit integers for `int8`. In the two
    /// 8-bit formats both operands have 8 bits and no scales; sums of `fp8` may be kept in fewer
    /// bits, as inference engines do.
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
    /// The kernels of one layer of a dense model for one token ([`LAYER_OPERATORS`]), which the
    /// host launches one by one without waiting: the host's time for all of them.
    LayerCalls,
    /// y = x·Wᵀ by weights that are packed as the executor keeps them, as it multiplies them.
    PackedProduct {
        /// Format of W.
        dtype: DType,
        /// Rows of x.
        m: u64,
        /// Rows of W.
        n: u64,
        /// Columns of both.
        k: u64,
    },
    /// The product in bf16 of many tokens with the matrices of their experts
    /// ([`GROUPED_PRODUCT`]).
    GroupedProduct,
    /// What a token of a mixture of experts needs besides products: its experts are chosen, the
    /// activation, and their sum. The token has 8 of 128 experts with 768 values each, and 2048
    /// columns.
    Mixture,
    /// A small kernel for one token of a model, as a node of a replayed graph, in which it waits
    /// for the node before it. The executor runs the same kernel.
    SmallKernel(SmallKernel),
    /// Attention over a cache in bf16 by the executor's kernels, all kernels of a call together, as
    /// nodes of a replayed graph. Every call has another cache, so that keys and values come from
    /// the GPU's memory. Prompts without a past have the same cache in every call, because in a
    /// model their keys and values have just been written. Decodes are divided among blocks as for
    /// a model.
    Attention(AttentionShape),
    /// A transfer of this number of bytes, in each direction.
    Transfer {
        /// The direction.
        direction: Direction,
        /// The kind of host memory.
        memory: HostMemory,
        /// The number of bytes.
        bytes: Bytes,
    },
}

/// Operators of a layer of a dense model: two norms, two sums, four products, attention with what
/// enters it, and the activation.
pub const LAYER_OPERATORS: usize = 11;
/// Pairs of a token and an expert, rows and columns of [`GpuWork::GroupedProduct`].
pub const GROUPED_PRODUCT: [u64; 3] = [8192, 2048, 2048];

/// A kernel that computes no product, for one token of a model with 4096 columns: 32 heads of 128
/// values over 8, and 14,336 values in its feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SmallKernel {
    /// A sublayer's result is added to the residual stream, and its RMS norm.
    Norm,
    /// The rotation of queries and keys, and the append of keys and values to the cache.
    Entry,
    /// silu(gate) · up.
    Activation,
}

impl SmallKernel {
    /// Each of them once.
    pub const ALL: [Self; 3] = [Self::Norm, Self::Entry, Self::Activation];

    /// The number of such kernels in one layer of a dense model.
    pub fn in_a_layer(self) -> usize {
        match self {
            Self::Norm => 2,
            Self::Entry | Self::Activation => 1,
        }
    }

    /// The small operators of a layer that they compute: each norm and the sum before it, what
    /// happens to heads before attention, and the activation.
    pub const OPERATORS: usize = 6;
}

impl fmt::Display for SmallKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Norm => "sum and norm",
            Self::Entry => "entry into the cache",
            Self::Activation => "activation",
        })
    }
}

/// The properties of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// Its name: "NVIDIA H200".
    pub name: String,
    /// Its compute capability: (9, 0).
    pub capability: (u32, u32),
    /// Its streaming multiprocessors.
    pub multiprocessors: u64,
    /// The size of its memory.
    pub capacity: Bytes,
    /// The size of its last-level cache.
    pub l2: Bytes,
    /// Its place on the PCI bus, as /sys names it: "0000:17:00.0".
    pub bus: String,
    /// The most bytes of a [`GpuWork::Read`].
    pub largest_read: Bytes,
    /// The most bytes of a [`GpuWork::Transfer`].
    pub largest_transfer: Bytes,
    /// Why products are missing; `None` where they are there.
    pub no_products: Option<String>,
    /// Why the kernels that run models are missing; `None` where they are there.
    pub no_model_kernels: Option<String>,
    /// The number of GPUs; this is the first.
    pub count: usize,
}

/// A result of some work: the value that is furthest from the right one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuCheck {
    /// The computed value.
    pub got: f64,
    /// The right value.
    pub wanted: f64,
    /// The allowed difference.
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
            GpuWork::LayerCalls => f.write_str("launches of the kernels of a layer"),
            GpuWork::PackedProduct { dtype, m, n, k } => {
                write!(f, "a product of {m} × {n} × {k} by packed weights in {dtype} on the GPU")
            }
            GpuWork::GroupedProduct => {
                f.write_str("a product of tokens with their experts' matrices on the GPU")
            }
            GpuWork::Mixture => f.write_str("the choice and the sum of a token's experts on the GPU"),
            GpuWork::SmallKernel(kernel) => write!(f, "the {kernel} of one token on the GPU"),
            GpuWork::Attention(shape) => write!(f, "{shape}, on the GPU"),
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
