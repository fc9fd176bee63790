//! What can go wrong outside: memory, threads, bytes from elsewhere.

use hwprofiles::DType;
use hwprofiles::units::Bytes;

/// An error of the world; our own mistakes (a slice too short) panic instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An allocation beyond a memory's capacity.
    #[error("memory '{memory}' is full: {wanted} wanted, {used} of {capacity} in use")]
    OutOfMemory {
        /// The memory's name.
        memory: String,
        /// The bytes asked for.
        wanted: Bytes,
        /// The bytes in use before.
        used: Bytes,
        /// All it has.
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
    /// A pool of no cores.
    #[error("a pool needs at least one core")]
    NoCores,
    /// A number format that no kernel reads.
    #[error("{what} in {dtype} are not supported: use one of {accepted}")]
    DType {
        /// "weights", "KV caches".
        what: &'static str,
        /// The format asked for.
        dtype: DType,
        /// The formats that would do.
        accepted: &'static str,
    },
    /// Bytes or values whose count does not fit the shape.
    #[error("{what} of {rows} × {columns} in {dtype} needs {wanted} bytes, not {got}")]
    Size {
        /// "a matrix", "a KV cache".
        what: &'static str,
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
        /// Number format.
        dtype: DType,
        /// Bytes it takes.
        wanted: usize,
        /// Bytes given.
        got: usize,
    },
    /// A GPU could not do something.
    #[error("the GPU refused {what}: {reason}")]
    Gpu {
        /// "a copy", "a product of 1 × 128 × 128 in fp8".
        what: String,
        /// Why, in CUDA's words.
        reason: String,
    },
}
