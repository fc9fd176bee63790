//! What a machine can do: units, devices, memories, links, measured curves.
//!
//! A [`Machine`] is a graph: [`Device`]s compute, [`Memory`]s store, directed [`Link`]s join
//! memories. Every number has a unit type ([`units`]) and a [`Provenance`]. Ask a device for times:
//!
//! ```
//! use hwprofiles::{AttentionShape, DType, Library, Phase};
//! let machine = Library::default().machine("example-loopback")?;
//! let cpu = machine.device(machine.device_named("cpu").ok_or("no cpu")?);
//! // An estimate: time, low, high, bound, basis.
//! let product = cpu.gemm_time(DType::Bf16, 3, 2048, 2048)?;
//! let (phase, heads, kv_heads, head_dim) = (Phase::Decode, 32, 4, 64);
//! let (batch, new_tokens, past_tokens) = (8, 1, 999);
//! let step =
//!     AttentionShape { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim };
//! let attention = cpu.attention_time(DType::Bf16, &step)?;
//! assert!(product.time + attention.time > cpu.launch.value);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Between measured points time is interpolated. Outside them the efficiency at the boundary is
//! used, and the [`Basis`] says so. Where nothing was measured and no documented estimate
//! stands in, the answer is [`MissingRate`], which names the command that measures it.
//!
//! # From measuring to a machine
//! `fulcrum bench` fills a [`Host`]: rates of *teams* of 1, 2, … threads, curves of memory
//! bandwidth and latency, and the loopback's link. [`MachineParts`] composes a host, or a datasheet
//! CPU ([`CpuPart`]), with a loopback device, a GPU and its link, CXL memory and a disk into a
//! [`Machine`]. A [`Composition`] does the same by name, and a [`Library`] looks names up: `this`,
//! a shipped profile ([`shipped`]), or a file. A GPU's name also stands for a machine: that GPU in
//! the server that its part names.
//!
//! # Files
//! A key at the top tells the kind: `machine:`, `host:`, `parts:`, `gpu:`, `cpu:`, `link:`, `cxl:`,
//! `nvme:` ([`Profile`]).
//!
//! A value carries its unit and its source:
//! `launch: {value: 2 us, source: {estimated: {reason: …}}}`. The reader refuses unknown and
//! duplicate keys, bare numbers, zero sizes and unknown names. Its message gives file, line, key
//! and what would be right ([`FileError`]). [`Machine::check`] lists what is merely suspicious. All
//! YAML is read by [`yaml`], which other crates use for their documents too.
//!
//! Rooms, each using only those before it: statistics, units, files, rates, machine, parts,
//! library, words.
#![forbid(unsafe_code)]

mod files;
mod library;
mod machine;
mod parts;
mod rates;
pub mod statistics;
pub mod units;
mod words;

pub use files::yaml;
pub use files::{
    AtomicFile, FileError, Presence, ProfileError, RowsError, TERMINAL_COLUMNS, TableRows, WriteError,
    hexadecimal, is_open_already, is_stdin, is_stream, number_ranges, open_input, plain_name, read_ahead,
    read_input, read_text, wrapped, write_atomically,
};
pub use library::{
    Library, PartSheet, Profile, SheetEntry, machine_schema, shipped, shipped_called, similar_names,
};
pub use machine::{
    ArchitectureKernels, CeilingRates, Device, DeviceDetails, DeviceId, DeviceKind, EngineAllReduce,
    EngineExecution, ExecutionOnGpus, Finding, GroupDivision, Interleave, LibraryProducts, Link, LinkDetails,
    LinkId, Machine, Memory, MemoryDetails, MemoryId, MemoryKind, MissingRate, OpOffload, Ranks, Stripe,
    WidenedProducts,
};
pub use parts::{
    AchievedShares, Composition, CoreCurve, CorePoint, CoreTeam, CpuPart, CpuSheet, Crossover, CxlChoice,
    CxlExpanders, CxlPart, DirectionRates, Dram, DramChoice, ExecutorCosts, GpuChoice, GpuGroup, GpuPart,
    Host, HostChange, HostChanges, InstructionSet, LaunchCosts, LinkPart, LoadedLatency, LoadedPoint,
    Loopback, LoopbackLimit, MachineBase, MachineParts, MeasuredCeilings, MeasuredGpu, MemoryModules, Numa,
    NumaNode, NumaPath, NvmePart, PageMode, PageSize, PartNames, PathRates, PointsError, Processor,
    ReachedRates, ReachedShares, ReadWriteMix, ReadWriteMixes, RowShare, RowShares, SheetRates, SocketDram,
    SocketsChoice, StoreKind, StreamCurve, StreamKind, TransferCurve,
};
pub use rates::{
    AllReduce, AttentionFacts, AttentionFitError, AttentionKernels, AttentionPoint, AttentionRates,
    AttentionShape, AttentionSurface, Basis, Bound, Curve, CurvePoint, CurveReading, Dequantisation,
    DevicePoints, Direction, Estimate, GemmFacts, GemmFitError, GemmKernels, GemmPoint, GemmRates,
    GemmSurface, HostMemory, LoadCurve, LoadPoint, MeasuredAllReduce, MeasuredPoints, MissingFact,
    MixedPoint, Operation, Operations, Phase, TransferPoint,
};
pub use units::{
    BlockSize, Bytes, BytesPerSec, Confidence, DType, Dollars, Elements, ElementsPerSec, Flop, FlopPerByte,
    FlopPerSec, GROUP, Hertz, Joules, Provenance, Ratio, RequestsPerSec, Seconds, Sourced, Tokens, UnitError,
    Watts, Years, edits_between, nearest, nearest_key, nearest_name,
};
pub use words::UnderstoodMachine;
