//! Parts that machines are composed of, apart from the host: a GPU, the link to it, CXL memory.

use crate::dtype::DType;
use crate::provenance::Sourced;
use crate::rates::{AttentionRates, GemmRates};
use crate::units::{Bytes, BytesPerSec, Dollars, FlopPerSec, Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A GPU: its datasheet, and what was measured of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuPart {
    /// Its name, the first key of the file.
    pub gpu: String,
    /// Memory on the package.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub capacity: Sourced<Bytes>,
    /// Bandwidth of that memory: its peak, or what reads reached where it was measured.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub bandwidth: Sourced<BytesPerSec>,
    /// Peak dense rate by weight format.
    pub peak: BTreeMap<DType, Sourced<FlopPerSec>>,
    /// Cost of one kernel launch.
    pub launch: Sourced<Seconds>,
    /// From the host's signal until the stream runs, and back.
    pub sync: Sourced<Seconds>,
    /// Measured matrix products; formats without any fall back to `peak` × a documented efficiency.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gemm: BTreeMap<DType, GemmRates>,
    /// Measured attention; formats without any fall back to `peak` and `bandwidth` × documented efficiencies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attention: BTreeMap<DType, AttentionRates>,
    /// Draw when busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Sourced<Watts>>,
    /// Price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Sourced<Dollars>>,
}

/// A link between host memory and a device's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPart {
    /// Its name, the first key of the file.
    pub link: String,
    /// α of a transfer, either way.
    pub latency: Sourced<Seconds>,
    /// β from host to device.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub to_device: Sourced<BytesPerSec>,
    /// β from device to host.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub to_host: Sourced<BytesPerSec>,
}

/// Memory behind CXL, read by the host's cores in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CxlPart {
    /// Its name, the first key of the file.
    pub cxl: String,
    /// How much it holds.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub capacity: Sourced<Bytes>,
    /// Read bandwidth.
    #[serde(deserialize_with = "crate::checked::checked")]
    pub bandwidth: Sourced<BytesPerSec>,
    /// Load-to-use latency.
    pub latency: Sourced<Seconds>,
    /// Price per GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_gb: Option<Sourced<Dollars>>,
}
