//! Parts that machines are made of: CPUs, GPUs, links, CXL memory, disks, measured hosts; and their composition.

mod attach;
mod compose;
mod composition;
mod cpu;
mod cpu_sheet;
mod cxl;
mod fitted;
mod gpu;
mod gpu_device;
mod gpu_group;
mod host;
mod link;
mod nvme;
mod sockets;

pub use compose::{Base, Parts};
pub use composition::{
    Composition, CxlChoice, DramChoice, GpuChoice, LoopbackLimit, PartNames, SocketsChoice,
};
pub use cpu::{CoreCurve, CorePoint, CpuPart, Instructions, RowShare, RowShares, SheetRates, SocketDram};
pub use cpu_sheet::CpuSheet;
pub use cxl::{CxlPart, Expanders};
pub use fitted::PointsError;
pub use gpu::{Achieved, GpuPart};
pub use gpu_group::Gpus;
pub use host::{
    Ceilings, Change, Changes, Crossover, Dram, Host, Launches, LoadedLatency, LoadedPoint, Loopback,
    MeasuredGpu, Mix, Mixes, Numa, NumaNode, NumaPath, PageMode, PageSize, PathRates, Processor, Stores,
    Stream, StreamCurve, Team, TransferCurve,
};
pub use link::{Directions, LinkPart};
pub use nvme::NvmePart;
