//! A machine: devices that compute, memories that store, links between memories; its file and its
//! tables.

mod check;
mod device;
mod execution;
mod file;
mod footnotes;
mod graph;
mod link;
mod memory;
mod quantised;
mod routes;
mod scaled;
mod show;
mod stripes;
mod tensor_parallel;
mod times;

pub use check::Finding;
pub use device::{CeilingRates, Device, DeviceDetails, DeviceId, DeviceKind, Ranks, WidenedProducts};
pub(crate) use execution::MOST_OF_TWO_CHANNELS;
pub use execution::{
    ArchitectureKernels, EngineAllReduce, EngineExecution, ExecutionOnGpus, LibraryProducts, OpOffload,
};
pub(crate) use footnotes::{Footnotes, paragraph};
pub use graph::Machine;
pub use link::{Link, LinkDetails, LinkId};
pub(crate) use memory::DRAM;
pub use memory::{Interleave, Memory, MemoryDetails, MemoryId, MemoryKind, Stripe};
pub(crate) use show::shortened;
pub use tensor_parallel::GroupDivision;
pub use times::MissingRate;
