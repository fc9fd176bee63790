//! What a machine can do: units, devices, memories, links, measured curves.
#![forbid(unsafe_code)]

mod checked;
mod curve;
mod dtype;
mod error;
mod estimate;
mod files;
mod host;
mod machine;
mod machine_file;
mod parts;
mod provenance;
mod rates;
mod unit_text;
pub mod units;
pub mod yaml;

pub use curve::{Curve, CurvePoint, Reading};
pub use dtype::{DType, GROUP};
pub use error::ProfileError;
pub use estimate::Missing;
pub use files::{WriteError, write_atomically};
pub use host::{Dram, Host, Loopback, Presence, Processor, Stream, StreamCurve, Team};
pub use machine::{Device, DeviceId, DeviceKind, Link, LinkId, Machine, Memory, MemoryId, MemoryKind};
pub use parts::{CxlPart, GpuPart, LinkPart};
pub use provenance::{Provenance, Sourced};
pub use rates::{AttentionRates, Basis, DecodePoint, Estimate, GemmPoint, GemmRates, PrefillPoint};
pub use units::{
    Bytes, BytesPerSec, Dollars, Elements, Flop, FlopPerByte, FlopPerSec, Joules, RequestsPerSec, Seconds,
    Tokens, UnitError, Watts,
};
