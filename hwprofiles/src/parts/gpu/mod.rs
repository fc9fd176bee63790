//! GPUs as parts of machines: what is known of one, as a device, its memory, several of a kind.

mod device;
mod group;
mod memory;
mod sheet;

pub use group::GpuGroup;
pub(crate) use sheet::check_idle;
pub use sheet::{AchievedShares, ExecutorCosts, GpuPart};
