//! GPUs as parts of machines: what is known of one, as a device, its memory, several in a machine.

mod choice;
mod device;
mod group;
mod memory;
mod sheet;

pub use choice::GpuChoice;
pub(crate) use choice::gpu_choices;
pub use group::GpuGroup;
pub(crate) use group::add_gpus;
pub(crate) use sheet::check_idle;
pub use sheet::{AchievedShares, ExecutorCosts, GpuPart};
