//! What a machine can do: units, devices, memories, links, measured curves.
//!
//! A [`Machine`] is a graph: [`Device`]s compute, [`Memory`]s store, directed [`Link`]s join memories. Every
//! number has a unit type ([`units`]) and a [`Provenance`]. Ask a device for times:
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
//! Between measured points time is interpolated; outside them the boundary's efficiency is carried on and the
//! [`Basis`] says so; where nothing was measured the answer is [`Missing`], which names the command that
//! measures it. Nothing is guessed.
//!
//! # From measuring to a machine
//! `fulcrum bench` fills a [`Host`]: rates of *teams* of 1, 2, … threads, curves of memory bandwidth and
//! latency, the loopback's link. [`Parts`] composes a host, or a datasheet CPU ([`CpuPart`]), with a loopback
//! device, a GPU and its link, CXL memory and a disk into a [`Machine`]; a [`Composition`] is the same by name,
//! and a [`Library`] looks names up: `this`, a shipped profile ([`shipped`]), or a file. A GPU's name also
//! stands for a machine: the GPU in the server that its part names.
//!
//! # Files
//! The key at the top tells the kind: `machine:`, `host:`, `parts:`, `gpu:`, `cpu:`, `link:`, `cxl:`, `nvme:`
//! ([`Profile`]).
//! A value carries its unit and its source: `launch: {value: 2 us, source: {estimated: {reason: …}}}`. The
//! reader refuses unknown and duplicate keys, bare numbers, zero sizes, and names that lead nowhere, with
//! file, line, key and what would be right ([`FileError`]); [`Machine::check`] lists what is merely
//! suspicious. All YAML goes through [`yaml`], which the other crates may use for their documents.
#![forbid(unsafe_code)]

mod all_reduce;
mod attention;
mod ceiling;
mod changes;
mod check;
mod checked;
mod compose;
mod composition;
mod cpu_part;
mod cpu_sheet;
mod curve;
mod dram;
mod dtype;
mod error;
mod estimate;
mod expander;
mod faster;
mod files;
mod footnotes;
mod gemm;
mod gpu_device;
mod gpus;
mod host;
mod host_show;
mod kriging;
mod least_squares;
mod library;
mod link_part;
mod machine;
mod machine_file;
mod measured_gpu;
mod numa;
mod operations;
mod parameter;
mod parts;
mod point_fit;
mod points;
mod provenance;
mod rates;
mod ratio;
mod refusal;
mod roofline;
mod rows;
mod sheet;
mod show;
mod sockets;
mod stripes;
mod summary;
mod table;
mod tensor_parallel;
mod unit_text;
pub mod units;
pub mod yaml;

pub use all_reduce::{AllReduce, MeasuredAllReduce};
pub use attention::{
    AttentionFacts, AttentionFitError, AttentionKernels, AttentionPoint, AttentionRates, AttentionShape,
    AttentionSurface, MixedPoint, Phase,
};
pub use ceiling::{Ceilings, Crossover};
pub use changes::{Change, Changes};
pub use check::Finding;
pub use compose::{Base, Expanders, Parts};
pub use composition::{Composition, CxlChoice, GpuChoice, LoopbackLimit, PartNames};
pub use cpu_part::{
    CoreCurve, CorePoint, CpuPart, Instructions, RowShare, RowShares, SheetRates, SocketDram,
};
pub use cpu_sheet::{CpuSheet, DramChoice};
pub use curve::{Curve, CurvePoint, Reading};
pub use dram::{
    Dram, LoadedLatency, LoadedPoint, Mix, Mixes, PageMode, PageSize, Stores, Stream, StreamCurve,
};
pub use dtype::{DType, GROUP};
pub use error::ProfileError;
pub use estimate::Missing;
pub use files::{Draft, WriteError, write_atomically};
pub use gemm::{FitError, GemmFacts, GemmPoint, GemmRates, GemmSurface, Kernels, Unfounded};
pub use gpus::Gpus;
pub use host::{Host, Loopback, Presence, Processor, Team};
pub use library::{Library, Profile, plain_name, shipped};
pub use link_part::{Directions, LinkPart};
pub use machine::{
    CeilingRates, Device, DeviceDetails, DeviceId, DeviceKind, Interleave, Link, LinkDetails, LinkId,
    Machine, Memory, MemoryDetails, MemoryId, MemoryKind,
};
pub use measured_gpu::{Direction, HostMemory, Launches, MeasuredGpu, TransferCurve};
pub use numa::{Numa, NumaNode, NumaPath, PathRates};
pub use operations::{Operation, Operations};
pub use parts::{Achieved, CxlPart, GpuPart, LoadCurve, LoadPoint, NvmePart};
pub use point_fit::PointsError;
pub use points::{DevicePoints, MeasuredPoints, TransferPoint};
pub use provenance::{Confidence, Provenance, Sourced};
pub use rates::{Basis, Bound, Estimate};
pub use ratio::Ratio;
pub use rows::{Rows, TableError};
pub use sheet::{Entry, Sheet};
pub use sockets::SocketsChoice;
pub use stripes::Stripe;
pub use tensor_parallel::Ranks;
pub use units::{
    Bytes, BytesPerSec, Dollars, Elements, Flop, FlopPerByte, FlopPerSec, Hertz, Joules, RequestsPerSec,
    Seconds, Tokens, UnitError, Watts, Years,
};
pub use yaml::FileError;
