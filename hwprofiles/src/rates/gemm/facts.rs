//! What a fit needs to know of a device.

use crate::units::{Bytes, BytesPerSec, DType, FlopPerSec};
use serde::{Deserialize, Serialize};

/// What the datasheet says of a device for one weight format.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmFacts {
    /// Dense peak rate of the format.
    #[serde(deserialize_with = "crate::units::checked")]
    pub peak: FlopPerSec,
    /// Peak bandwidth of the device's memory.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: BytesPerSec,
    /// Multiprocessors that tiles are dealt to.
    #[serde(deserialize_with = "crate::units::checked")]
    pub multiprocessors: u64,
    /// The cache that all multiprocessors share.
    #[serde(deserialize_with = "crate::units::checked")]
    pub l2: Bytes,
    /// How its library picks kernels for this format.
    pub kernels: GemmKernels,
}

/// How a library picks the kernel of a product. Measurements at powers of two do not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GemmKernels {
    /// It picks the best of many tile shapes and splits of k, as cuBLAS does.
    Searched,
    /// The same with so many tile shapes that a tile at an edge costs only what it holds: cuBLAS on
    /// Hopper with 16 bits.
    SearchedFinely,
    /// It picks the best of a few tile shapes and quantises activations first: one-byte formats.
    Quantised,
    /// The number of rows alone decides the tile shape, activations are quantised first, and a
    /// number of rows that is not a multiple of 16 is slow: one-byte formats on Hopper. Times at m
    /// of 64, 128, 256 and 512 show this.
    QuantisedHopper,
    /// The number of rows alone decides the tile shape, and activations are quantised first:
    /// one-byte formats on Ada.
    QuantisedAda,
}

impl GemmKernels {
    pub(crate) fn for_architecture(architecture: Option<&str>, dtype: DType) -> Self {
        let one_byte = matches!(dtype, DType::Fp8 | DType::Int8);
        match (architecture, one_byte) {
            (Some("hopper"), false) => Self::SearchedFinely,
            (_, false) => Self::Searched,
            (Some("hopper"), true) => Self::QuantisedHopper,
            (Some("ada"), true) => Self::QuantisedAda,
            (_, true) => Self::Quantised,
        }
    }

    /// Whether activations are quantised before the product.
    pub(crate) fn quantises(self) -> bool {
        matches!(self, Self::Quantised | Self::QuantisedHopper | Self::QuantisedAda)
    }
}
