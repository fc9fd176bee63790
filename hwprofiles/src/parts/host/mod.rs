//! A measured host: what `fulcrum bench` writes, how it is shown, how two of them differ.

mod ceilings;
mod changes;
mod dram;
mod file;
mod measured_gpu;
mod numa;
mod show;

pub use ceilings::{Ceilings, Crossover};
pub use changes::{Change, Changes};
pub use dram::{
    Dram, LoadedLatency, LoadedPoint, Mix, Mixes, PageMode, PageSize, Stores, Stream, StreamCurve,
};
pub use file::{Host, Loopback, Processor, Team};
pub use measured_gpu::{Launches, MeasuredGpu, TransferCurve};
pub use numa::{Numa, NumaNode, NumaPath, PathRates};
