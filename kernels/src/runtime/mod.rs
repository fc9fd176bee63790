//! What kernels stand on: counted memory, pinned threads, and the instruction set that they use.

mod account;
pub mod affinity;
pub(crate) mod amx_support;
pub(crate) mod arena;
pub(crate) mod buffer;
pub(crate) mod device;
pub(crate) mod disjoint;
pub(crate) mod error;
pub(crate) mod flag;
pub(crate) mod futex;
pub(crate) mod interrupt;
pub(crate) mod path;
pub(crate) mod pool;
#[cfg(test)]
#[path = "../../tests/schedules/waiting.rs"]
mod schedules;
pub(crate) mod scratch;
pub(crate) mod team;

pub use arena::MemoryArena;
pub use buffer::{Buffer, PageBacking};
pub(crate) use device::{DeviceAllocator, DeviceBytes, PageLock};
pub(crate) use disjoint::Disjoint;
pub use error::KernelError;
pub use flag::Flag;
pub use futex::Word;
pub use interrupt::interrupt_flag;
pub use path::Path;
pub use pool::Pool;
pub use scratch::Scratch;
