//! Bytes that a placement takes from each memory.

mod scratch;
mod sequence_bytes;
mod usage;
mod working_memory;

pub use scratch::scratch_bytes;
pub use sequence_bytes::{SequenceBytes, sequence_bytes};
pub use usage::{
    MemoryUsage, StagingSlot, activation_buffers, cache_bytes, rotation_table_bytes, shares_embedding,
    staging_slots, usage, vector_holders,
};

pub(crate) use scratch::{is_gpu, operator_scratch};
pub(crate) use usage::{different_layers, overfilled, shared_cache_bytes, usage_of_placement};
