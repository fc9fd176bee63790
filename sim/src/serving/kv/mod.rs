//! The KV cache: its size, its blocks, and the memories that it spills to.

pub(crate) mod blocks;
pub(crate) mod capacity;
pub(crate) mod offload;
pub(crate) mod second_level;
pub(crate) mod sequence_blocks;

pub use blocks::Blocks;
pub use capacity::{
    EngineMemory, KvCapacity, KvCapacityError, KvMemory, MemoryShare, NoKvRoom, StateAllocation, kv_blocks,
};
pub use offload::{KvOffload, KvOffloadError, KvTransfer};
pub use sequence_blocks::SequenceBlocks;
