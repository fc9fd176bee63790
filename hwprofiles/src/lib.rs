//! What a machine can do: units, devices, memories, links, measured curves.
#![forbid(unsafe_code)]

mod dtype;
pub mod units;

pub use dtype::{DType, GROUP};
