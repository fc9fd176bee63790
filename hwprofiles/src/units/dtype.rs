//! Number formats and how many bytes they take.

use crate::units::quantities::{Bytes, Elements};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;
use std::str::FromStr;

/// A number format of weights, KV cache or activations.
///
/// `int8` and `int4` are storage formats: symmetric integers in groups of [`GROUP`] values along a
/// row, each group with one f16 scale. In a KV cache a row holds the values of one head at one
/// position. `int2` has an f16 minimum per group as well. A row is padded to whole groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of binary32.
    Bf16,
    /// 8-bit float (E4M3 or E5M2).
    Fp8,
    /// 8-bit integers with one f16 scale per group: 8.5 bits a value.
    Int8,
    /// 4-bit integers with one f16 scale per group: 4.5 bits a value.
    Int4,
    /// 2-bit integers from 0 with one f16 scale and one f16 minimum per group: 3 bits a value. Only
    /// KV caches use it.
    Int2,
}

/// Values that share one scale in `int8`, `int4` and `int2`.
pub const GROUP: u64 = 32;

impl DType {
    /// Every format, in the order of the enum.
    pub const ALL: [DType; 7] =
        [DType::F32, DType::F16, DType::Bf16, DType::Fp8, DType::Int8, DType::Int4, DType::Int2];

    /// Whether weight matrices may be stored in it.
    pub fn holds_weights(self) -> bool {
        self != DType::Int2
    }

    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::Fp8 => "fp8",
            DType::Int8 => "int8",
            DType::Int4 => "int4",
            DType::Int2 => "int2",
        }
    }

    /// Bytes of a matrix of `rows` × `columns`, scales and padding of the last group included.
    pub fn matrix_bytes(self, rows: u64, columns: u64) -> Bytes {
        let groups = columns.div_ceil(GROUP);
        let row = match self {
            DType::F32 => 4 * columns,
            DType::F16 | DType::Bf16 => 2 * columns,
            DType::Fp8 => columns,
            DType::Int8 => groups * (GROUP + 2),
            DType::Int4 => groups * (GROUP / 2 + 2),
            DType::Int2 => groups * (GROUP / 4 + 4),
        };
        Bytes::new(rows * row)
    }

    /// Bytes of a vector of `elements` values.
    pub fn bytes(self, elements: Elements) -> Bytes {
        self.matrix_bytes(1, elements.get())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| {
            format!("'{text}' is not a number format: use one of {}", Self::ALL.map(DType::name).join(", "))
        })
    }
}

/// Read as a text and not as an enum, so that messages about a table name its format.
impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
