//! Bytes that a placement takes from each memory.

mod layer_needs;
mod scratch;
mod sequence_bytes;
mod usage;

pub use layer_needs::usage;
pub use scratch::scratch_bytes;
pub use sequence_bytes::{SequenceBytes, sequence_bytes};
pub use usage::{
    MemoryUsage, StagingSlot, activation_buffers, cache_bytes, rotation_table_bytes, shares_embedding,
    staging_slots, vector_holders,
};

pub(crate) use layer_needs::{LayerNeeds, NeedsCounter};
pub(crate) use scratch::{gpu_scratch, is_gpu, operator_scratch};
pub(crate) use usage::{different_layers, overfilled, shared_cache_bytes};
