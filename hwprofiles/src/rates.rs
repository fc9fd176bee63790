//! How fast a device computes: measured points, and the time of a shape between them.

use crate::provenance::Provenance;
use crate::units::{BytesPerSec, FlopPerSec, Seconds};
use serde::{Deserialize, Serialize};

/// How an estimate relates to what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The very point was measured.
    Measured,
    /// Between measured points.
    Interpolated,
    /// Outside the measured region, at the efficiency of its boundary.
    Extrapolated,
    /// From a datasheet or an estimate.
    Estimated,
}

/// A time and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The time of one call, launch overhead not included.
    pub time: Seconds,
    /// How it was found.
    pub basis: Basis,
}

/// One measured matrix product y[m, n] = x[m, k] · W[n, k]ᵀ whose weights came from the device's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmPoint {
    /// Rows of x: tokens in the step.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub m: u64,
    /// Rows of W: output features.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub n: u64,
    /// Columns of W: input features.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub k: u64,
    /// Median time of one call, without the fork-join or launch.
    #[serde(rename = "time_us", with = "crate::table::microseconds")]
    pub time: Seconds,
}

/// Measured matrix products of one weight format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmRates {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, in any order; at least one. In files a table of `m,n,k,time_us`.
    #[serde(serialize_with = "crate::table::serialize", deserialize_with = "crate::checked::checked_table")]
    pub points: Vec<GemmPoint>,
}

/// One measured decode attention: one new token per sequence over a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodePoint {
    /// KV bytes one call reads, all sequences and heads of one layer together.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub kv_bytes: crate::units::Bytes,
    /// Rate at which it read them.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub rate: BytesPerSec,
}

/// One measured prefill attention (causal, nothing cached before).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefillPoint {
    /// Tokens of the sequence.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub tokens: u64,
    /// Rate, counting only the FLOP below the causal diagonal.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub rate: FlopPerSec,
}

/// Measured attention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionRates {
    /// Where the points came from.
    pub source: Provenance,
    /// Decode, by KV bytes.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub decode: Vec<DecodePoint>,
    /// Prefill, by tokens.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub prefill: Vec<PrefillPoint>,
}
