//! What a machine can do: units, devices, memories, links, measured curves.
//!
//! A [`Machine`] is a graph: [`Device`]s compute, [`Memory`]s store, directed [`Link`]s join
//! memories. Every number has a unit type ([`units`]) and a [`Provenance`]. Ask a device for times:
//!
//! ```
//! use hwprofiles::{AttentionShape, DType, Library, Phase};
//! let machine = Library::default().machine("example-loopback")?;
//! let cpu = machine.device(machine.device_named("cpu").ok_or("no cpu")?);
//! let product = cpu.gemm_time(DType::Bf16, 3, 2048, 2048)?;      // Estimate { time, low, high, bound, basis }
//! let (phase, heads, kv_heads, head_dim) = (Phase::Decode, 32, 4, 64);
//! let step = AttentionShape { phase, batch: 8, new_tokens: 1, past_tokens: 999, heads, kv_heads, head_dim };
//! let attention = cpu.attention_time(DType::Bf16, &step)?;
//! assert!(product.time + attention.time > cpu.launch.value);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Between measured points time is interpolated; outside them the boundary's efficiency is carried
//! on and the [`Basis`] says so; where nothing was measured the answer is [`MissingRate`], which
//! names the command that measures it. Nothing is guessed.
//!
//! # From measuring to a machine
//! `fulcrum bench` fills a [`Host`]: rates of *teams* of 1, 2, … threads, curves of memory
//! bandwidth and latency, the loopback's link. [`MachineParts`] composes a host, or a datasheet CPU
//! ([`CpuPart`]), with a loopback device, a GPU and its link, CXL memory and a disk into a
//! [`Machine`]; a [`Composition`] is the same by name, and a [`Library`] looks names up: `this`, a
//! shipped profile ([`shipped`]), or a file. A GPU's name also stands for a machine: the GPU in the
//! server that its part names.
//!
//! # Files
//! The key at the top tells the kind: `machine:`, `host:`, `parts:`, `gpu:`, `cpu:`, `link:`,
//! `cxl:`, `nvme:` ([`Profile`]). A value carries its unit and its source:
//! `launch: {value: 2 us, source: {estimated: {reason: …}}}`. The reader refuses unknown and
//! duplicate keys, bare numbers, zero sizes, and names that lead nowhere, with file, line, key and
//! what would be right ([`FileError`]); [`Machine::check`] lists what is merely suspicious. All
//! YAML goes through [`yaml`], which the other crates may use for their documents.
//!
//! Rooms, each using only those before it: units, files, rates, machine, parts, library.
#![forbid(unsafe_code)]

mod files;
mod library;
mod machine;
mod parts;
mod rates;
pub mod units;

pub use files::yaml;
pub use files::{
    AtomicFile, FileError, Presence, ProfileError, RowsError, TableRows, WriteError, plain_name,
    write_atomically,
};
pub use library::{Library, PartSheet, Profile, SheetEntry, shipped};
pub use machine::{
    CeilingRates, Device, DeviceDetails, DeviceId, DeviceKind, Finding, Interleave, Link, LinkDetails,
    LinkId, Machine, Memory, MemoryDetails, MemoryId, MemoryKind, MissingRate, Ranks, Stripe,
};
pub use parts::{
    AchievedShares, Composition, CoreCurve, CorePoint, CoreTeam, CpuPart, CpuSheet, Crossover, CxlChoice,
    CxlExpanders, CxlPart, DirectionRates, Dram, DramChoice, GpuChoice, GpuGroup, GpuPart, Host, HostChange,
    HostChanges, InstructionSet, LaunchCosts, LinkPart, LoadedLatency, LoadedPoint, Loopback, LoopbackLimit,
    MachineBase, MachineParts, MeasuredCeilings, MeasuredGpu, Numa, NumaNode, NumaPath, NvmePart, PageMode,
    PageSize, PartNames, PathRates, PointsError, Processor, ReadWriteMix, ReadWriteMixes, RowShare,
    RowShares, SheetRates, SocketDram, SocketsChoice, StoreKind, StreamCurve, StreamKind, TransferCurve,
};
pub use rates::{
    AllReduce, AttentionFacts, AttentionFitError, AttentionKernels, AttentionPoint, AttentionRates,
    AttentionShape, AttentionSurface, Basis, Bound, Curve, CurvePoint, CurveReading, DevicePoints, Direction,
    Estimate, GemmFacts, GemmFitError, GemmKernels, GemmPoint, GemmRates, GemmSurface, HostMemory, LoadCurve,
    LoadPoint, MeasuredAllReduce, MeasuredPoints, MissingFact, MixedPoint, Operation, Operations, Phase,
    TransferPoint,
};
pub use units::{
    Bytes, BytesPerSec, Confidence, DType, Dollars, Elements, Flop, FlopPerByte, FlopPerSec, GROUP, Hertz,
    Joules, Provenance, Ratio, RequestsPerSec, Seconds, Sourced, Tokens, UnitError, Watts, Years,
};
