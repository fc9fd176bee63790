//! A measured host: what `fulcrum bench` writes, how it is shown, how two of them differ.

mod ceilings;
mod changes;
mod dram;
mod file;
mod measured_gpu;
mod numa;
mod shared;
mod show;

pub use ceilings::{Crossover, MeasuredCeilings};
pub use changes::{HostChange, HostChanges};
pub use dram::{
    Dram, LoadedLatency, LoadedPoint, PageMode, PageSize, ReadWriteMix, ReadWriteMixes, StoreKind,
    StreamCurve, StreamKind,
};
pub use file::{CoreTeam, Host, Loopback, Processor};
pub use measured_gpu::{LaunchCosts, MeasuredGpu, TransferCurve};
pub use numa::{Numa, NumaNode, NumaPath, PathRates};
