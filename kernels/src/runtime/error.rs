//! Errors of memory, threads, input sizes and the GPU.

use hwprofiles::DType;
use hwprofiles::units::Bytes;

/// An error that the caller cannot prevent. Mistakes of the caller (a slice too short) panic
/// instead.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// An allocation beyond a memory's capacity.
    #[error("memory '{memory}' is full: {wanted} wanted, {used} of {capacity} in use")]
    OutOfMemory {
        /// The memory's name.
        memory: String,
        /// The bytes asked for.
        wanted: Bytes,
        /// The bytes in use before.
        used: Bytes,
        /// Its capacity.
        capacity: Bytes,
    },
    /// The operating system gave no memory.
    #[error("the operating system gave no {bytes} of memory: {source}")]
    Map {
        /// The bytes asked for.
        bytes: Bytes,
        /// Why.
        source: std::io::Error,
    },
    /// Memory could not be bound to a NUMA node.
    #[error("memory cannot be bound to NUMA node {node}: {source}")]
    Bind {
        /// The node asked for.
        node: usize,
        /// Why.
        source: std::io::Error,
    },
    /// A thread could not be bound to a core.
    #[error("thread cannot be pinned to core {core}: {source}; cores it may use: {available:?}")]
    Pin {
        /// The core asked for.
        core: usize,
        /// The cores in the affinity mask.
        available: Vec<usize>,
        /// Why.
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("thread for core {core} cannot be started: {source}")]
    Spawn {
        /// The core it was for.
        core: usize,
        /// Why.
        source: std::io::Error,
    },
    /// A pool was asked for without cores.
    #[error("a pool needs at least one core")]
    NoCores,
    /// Logits of which no token can be chosen.
    #[error(
        "the model's logits are NaN or infinite: one of its weights is, or its activations outgrow f32; no token can be \
         chosen from them"
    )]
    NotFinite,
    /// A number format that no kernel reads.
    #[error("{what} in {dtype} are not supported: use one of {accepted}")]
    DType {
        /// What is not supported: "weights", "KV caches".
        what: &'static str,
        /// The format asked for.
        dtype: DType,
        /// The formats that are supported.
        accepted: &'static str,
    },
    /// Rows that are not whole blocks.
    #[error("rows of {columns} columns are not whole blocks of {block}, in which {dtype} is stored")]
    Blocks {
        /// Number format.
        dtype: DType,
        /// Columns.
        columns: usize,
        /// Columns of a block.
        block: usize,
    },
    /// Rows that are not whole panels.
    #[error("{rows} rows are not whole panels of 16, each of which has its scales in {dtype}")]
    Panels {
        /// Number format.
        dtype: DType,
        /// Rows.
        rows: usize,
    },
    /// A format to which values are not quantised.
    #[error("values are not quantised to {dtype}: only weights of a file in {dtype} are read")]
    Quantise {
        /// Number format.
        dtype: DType,
    },
    /// The number of bytes or values does not fit the shape.
    #[error("{what} of {rows} × {columns} in {dtype} needs {wanted} bytes, not {got}")]
    Size {
        /// What has the wrong size: "a matrix", "a KV cache".
        what: &'static str,
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
        /// Number format.
        dtype: DType,
        /// Bytes that the shape takes.
        wanted: usize,
        /// Bytes that were given.
        got: usize,
    },
    /// A shape whose number of bytes a `usize` cannot hold.
    #[error("{what} of {rows} × {columns} in {dtype} has more bytes than can be addressed")]
    TooLarge {
        /// What is too large: "a matrix", "a KV cache".
        what: &'static str,
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
        /// Number format.
        dtype: DType,
    },
    /// A GPU could not do something.
    #[error("the GPU refused {what}: {reason}")]
    Gpu {
        /// What failed: "a copy", "a product of 1 × 128 × 128 in fp8".
        what: String,
        /// CUDA's reason.
        reason: String,
    },
}
