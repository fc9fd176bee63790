//! Parts that machines are made of: CPUs, GPUs, links, CXL memory, disks, measured hosts; and their
//! composition.

mod attach;
mod compose;
mod composition;
mod cpu;
mod cpu_sheet;
mod cxl;
mod dequantisation;
mod fitted;
mod gpu;
mod host;
mod link;
mod modules;
mod nvme;
mod reached;
mod sockets;

pub use compose::{MachineBase, MachineParts};
pub use composition::{Composition, CxlChoice, DramChoice, LoopbackLimit, PartNames, SocketsChoice};
pub use cpu::{CoreCurve, CorePoint, CpuPart, InstructionSet, RowShare, RowShares, SheetRates, SocketDram};
pub use cpu_sheet::CpuSheet;
pub use cxl::{CxlExpanders, CxlPart};
pub use fitted::PointsError;
pub use gpu::{AchievedShares, ExecutorCosts, GpuChoice, GpuGroup, GpuPart};
pub use host::{
    CoreTeam, Crossover, Dram, Host, HostChange, HostChanges, LaunchCosts, LoadedLatency, LoadedPoint,
    Loopback, MeasuredCeilings, MeasuredGpu, Numa, NumaNode, NumaPath, PageMode, PageSize, PathRates,
    Processor, ReadWriteMix, ReadWriteMixes, StoreKind, StreamCurve, StreamKind, TransferCurve,
};
pub use link::{DirectionRates, LinkPart};
pub use modules::MemoryModules;
pub use nvme::NvmePart;
pub use reached::{ReachedRates, ReachedShares};
