//! Number formats and how many bytes they take.

use crate::units::nearest::{nearest, plain_word};
use crate::units::quantities::{Bytes, Elements};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// A number format of weights, KV cache or activations.
///
/// A row of a matrix is stored in blocks ([`DType::block`]) and padded to whole blocks.
///
/// `int8` and `int4` are Fulcrum's storage formats: symmetric integers in groups of [`GROUP`]
/// values along a row, each group with one f16 scale. In a KV cache a row holds the values of one
/// head at one position. `int2` has an f16 minimum per group as well. The formats named `q` and
/// `iq` are those of GGUF files: `ggml` for most, ik_llama.cpp for `iq2_k` to `iq6_k`, `iq4_ks`,
/// `iq4_kss` and `iq4_kt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of binary32.
    Bf16,
    /// 8-bit float (E4M3 or E5M2). A matrix has an f32 scale per row, which is the same in all rows
    /// where its file has one scale.
    Fp8,
    /// 8-bit float (E4M3) with one scale per 128 × 128 values, as DeepSeek-V3 publishes it. A
    /// matrix has an f32 scale per 16 × 128 values: 8.02 bits a value.
    Fp8Block,
    /// 8-bit integers with one f16 scale per group: 8.5 bits a value.
    Int8,
    /// 4-bit integers with one f16 scale per group: 4.5 bits a value. Also what compressed-
    /// tensors calls `pack-quantized` with groups of 32.
    Int4,
    /// 4-bit integers with an f16 scale and a 4-bit zero point per 128 values, as GPTQ and AWQ
    /// store them: 4.16 bits a value.
    Int4G128,
    /// 2-bit integers from 0 with one f16 scale and one f16 minimum per group: 3 bits a value.
    /// Only KV caches use it.
    Int2,
    /// GGUF: 8-bit integers, an f16 scale per 32 values: 8.5 bits a value.
    Q8_0,
    /// GGUF: 6.5625 bits a value.
    Q6K,
    /// GGUF: 5.5 bits a value.
    Q5K,
    /// GGUF: 6 bits a value, with a minimum per 32 values.
    Q5_1,
    /// GGUF: 5.5 bits a value.
    Q5_0,
    /// GGUF: 4.5 bits a value.
    Q4K,
    /// GGUF: 5 bits a value, with a minimum per 32 values.
    Q4_1,
    /// GGUF: 4.5 bits a value.
    Q4_0,
    /// GGUF: 3.4375 bits a value.
    Q3K,
    /// GGUF: 2.625 bits a value.
    Q2K,
    /// ik_llama.cpp: 6.625 bits a value.
    Iq6K,
    /// ik_llama.cpp: 5.5 bits a value.
    Iq5K,
    /// ik_llama.cpp: 4.5 bits a value.
    Iq4K,
    /// ik_llama.cpp: 4.25 bits a value, and an f32 scale per row that is not counted.
    Iq4Ks,
    /// ik_llama.cpp: 4 bits a value.
    Iq4Kss,
    /// ik_llama.cpp, a trellis: 4 bits a value.
    Iq4Kt,
    /// GGUF: 4-bit indices of 16 unequal steps, an f16 scale per 32 values: 4.5 bits a value.
    Iq4Nl,
    /// GGUF: the same steps with 6-bit scales: 4.25 bits a value.
    Iq4Xs,
    /// ik_llama.cpp: 3.4375 bits a value.
    Iq3K,
    /// GGUF: 3.4375 bits a value.
    Iq3S,
    /// GGUF: 3.0625 bits a value.
    Iq3Xxs,
    /// ik_llama.cpp: 2.375 bits a value.
    Iq2K,
    /// GGUF: 2.5625 bits a value.
    Iq2S,
    /// GGUF: 2.3125 bits a value.
    Iq2Xs,
    /// GGUF: 2.0625 bits a value.
    Iq2Xxs,
    /// GGUF: 1.75 bits a value.
    Iq1M,
    /// GGUF: 1.5625 bits a value.
    Iq1S,
    /// 4-bit floats (E2M1), a power of two per 32 values: 4.25 bits a value (OCP Microscaling).
    Mxfp4,
    /// 4-bit floats (E2M1), an FP8 scale per 16 values: 4.5 bits a value. A matrix has an f32 scale
    /// per row beside, which is the same in all rows where its file has one scale.
    Nvfp4,
}

/// Values that share one scale in `int8`, `int4` and `int2`.
pub const GROUP: u64 = 32;

/// The unit in which a row of a matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize {
    /// Values in a block.
    pub values: u64,
    /// Bytes of a block, scales included.
    pub bytes: u64,
}

impl DType {
    /// Every format, in the order of the enum.
    pub const ALL: [DType; 38] = [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::Fp8,
        DType::Fp8Block,
        DType::Int8,
        DType::Int4,
        DType::Int4G128,
        DType::Int2,
        DType::Q8_0,
        DType::Q6K,
        DType::Q5K,
        DType::Q5_1,
        DType::Q5_0,
        DType::Q4K,
        DType::Q4_1,
        DType::Q4_0,
        DType::Q3K,
        DType::Q2K,
        DType::Iq6K,
        DType::Iq5K,
        DType::Iq4K,
        DType::Iq4Ks,
        DType::Iq4Kss,
        DType::Iq4Kt,
        DType::Iq4Nl,
        DType::Iq4Xs,
        DType::Iq3K,
        DType::Iq3S,
        DType::Iq3Xxs,
        DType::Iq2K,
        DType::Iq2S,
        DType::Iq2Xs,
        DType::Iq2Xxs,
        DType::Iq1M,
        DType::Iq1S,
        DType::Mxfp4,
        DType::Nvfp4,
    ];

    /// The formats that Fulcrum itself computes with and quantises to.
    pub const OWN: [DType; 7] =
        [DType::F32, DType::F16, DType::Bf16, DType::Fp8, DType::Int8, DType::Int4, DType::Int2];

    /// Whether weight matrices may be stored in it.
    pub fn holds_weights(self) -> bool {
        self != DType::Int2
    }

    /// Whether a KV cache may be stored in it.
    pub fn holds_kv(self) -> bool {
        Self::OWN.contains(&self)
    }

    /// Whether a device must turn its values into another format before it multiplies: blocks of
    /// integers or of 4-bit floats.
    pub fn is_quantised(self) -> bool {
        !matches!(self, DType::F32 | DType::F16 | DType::Bf16 | DType::Fp8)
    }

    /// The block of its rows; of single numbers, one value.
    pub fn block(self) -> BlockSize {
        let (values, bytes) = match self {
            DType::F32 => (1, 4),
            DType::F16 => (1, 2),
            DType::Bf16 => (1, 2),
            DType::Fp8 => (1, 1),
            DType::Fp8Block => (512, 513),
            DType::Int8 => (32, 34),
            DType::Int4 => (32, 18),
            DType::Int4G128 => (256, 133),
            DType::Int2 => (32, 12),
            DType::Q8_0 => (32, 34),
            DType::Q6K => (256, 210),
            DType::Q5K => (256, 176),
            DType::Q5_1 => (32, 24),
            DType::Q5_0 => (32, 22),
            DType::Q4K => (256, 144),
            DType::Q4_1 => (32, 20),
            DType::Q4_0 => (32, 18),
            DType::Q3K => (256, 110),
            DType::Q2K => (256, 84),
            DType::Iq6K => (256, 212),
            DType::Iq5K => (256, 176),
            DType::Iq4K => (256, 144),
            DType::Iq4Ks => (256, 136),
            DType::Iq4Kss => (256, 128),
            DType::Iq4Kt => (256, 128),
            DType::Iq4Nl => (32, 18),
            DType::Iq4Xs => (256, 136),
            DType::Iq3K => (256, 110),
            DType::Iq3S => (256, 110),
            DType::Iq3Xxs => (256, 98),
            DType::Iq2K => (256, 76),
            DType::Iq2S => (256, 82),
            DType::Iq2Xs => (256, 74),
            DType::Iq2Xxs => (256, 66),
            DType::Iq1M => (256, 56),
            DType::Iq1S => (256, 50),
            DType::Mxfp4 => (32, 17),
            DType::Nvfp4 => (16, 9),
        };
        BlockSize { values, bytes }
    }

    /// Bits of one value, its share of the block's scales included.
    pub fn bits(self) -> f64 {
        let BlockSize { values, bytes } = self.block();
        8.0 * bytes as f64 / values as f64
    }

    /// The word used in files.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::Fp8 => "fp8",
            DType::Fp8Block => "fp8_block",
            DType::Int8 => "int8",
            DType::Int4 => "int4",
            DType::Int4G128 => "int4_g128",
            DType::Int2 => "int2",
            DType::Q8_0 => "q8_0",
            DType::Q6K => "q6_k",
            DType::Q5K => "q5_k",
            DType::Q5_1 => "q5_1",
            DType::Q5_0 => "q5_0",
            DType::Q4K => "q4_k",
            DType::Q4_1 => "q4_1",
            DType::Q4_0 => "q4_0",
            DType::Q3K => "q3_k",
            DType::Q2K => "q2_k",
            DType::Iq6K => "iq6_k",
            DType::Iq5K => "iq5_k",
            DType::Iq4K => "iq4_k",
            DType::Iq4Ks => "iq4_ks",
            DType::Iq4Kss => "iq4_kss",
            DType::Iq4Kt => "iq4_kt",
            DType::Iq4Nl => "iq4_nl",
            DType::Iq4Xs => "iq4_xs",
            DType::Iq3K => "iq3_k",
            DType::Iq3S => "iq3_s",
            DType::Iq3Xxs => "iq3_xxs",
            DType::Iq2K => "iq2_k",
            DType::Iq2S => "iq2_s",
            DType::Iq2Xs => "iq2_xs",
            DType::Iq2Xxs => "iq2_xxs",
            DType::Iq1M => "iq1_m",
            DType::Iq1S => "iq1_s",
            DType::Mxfp4 => "mxfp4",
            DType::Nvfp4 => "nvfp4",
        }
    }

    /// Bytes of a matrix of `rows` × `columns`, scales and padding of the last block included.
    pub fn matrix_bytes(self, rows: u64, columns: u64) -> Bytes {
        match self {
            // Values are not padded. One scale of 4 bytes per 16 × 128 values is 1 byte per 512.
            DType::Fp8Block => Bytes::new(rows * (columns + columns.div_ceil(512))),
            DType::Fp8 if columns > 0 => Bytes::new(rows * (columns + 4)),
            DType::Nvfp4 if columns > 0 => self.cache_bytes(rows, columns) + Bytes::new(4 * rows),
            _ => self.cache_bytes(rows, columns),
        }
    }

    /// Bytes of `rows` rows of `width` values in a KV cache, or of activations: whole blocks. In
    /// `fp8` they have no scales of their own.
    pub fn cache_bytes(self, rows: u64, width: u64) -> Bytes {
        let BlockSize { values, bytes } = self.block();
        Bytes::new(rows * width.div_ceil(values) * bytes)
    }

    /// Bytes of a vector of `elements` values.
    pub fn bytes(self, elements: Elements) -> Bytes {
        self.cache_bytes(1, elements.get())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Other programs' words for the formats, in lower-case letters and digits alone.
const OTHER_WORDS: [(&str, DType); 34] = [
    ("float32", DType::F32),
    ("fp32", DType::F32),
    ("float", DType::F32),
    ("float16", DType::F16),
    ("fp16", DType::F16),
    ("half", DType::F16),
    ("bfloat16", DType::Bf16),
    ("float8", DType::Fp8),
    ("fp8e4m3", DType::Fp8),
    ("fp8e4m3fn", DType::Fp8),
    ("fp8e5m2", DType::Fp8),
    ("f8e4m3", DType::Fp8),
    ("f8e5m2", DType::Fp8),
    ("float8e4m3", DType::Fp8),
    ("float8e4m3fn", DType::Fp8),
    ("float8e5m2", DType::Fp8),
    ("fp8128x128", DType::Fp8Block),
    ("fp8blockwise", DType::Fp8Block),
    ("gptq", DType::Int4G128),
    ("gptqint4", DType::Int4G128),
    ("gptq4bit", DType::Int4G128),
    ("gptqmarlin", DType::Int4G128),
    ("int4gptq", DType::Int4G128),
    ("awq", DType::Int4G128),
    ("awqint4", DType::Int4G128),
    ("awq4bit", DType::Int4G128),
    ("awqmarlin", DType::Int4G128),
    ("int4awq", DType::Int4G128),
    ("w4a16g128", DType::Int4G128),
    ("int4g32", DType::Int4),
    ("w4a16g32", DType::Int4),
    ("nvidiafp4", DType::Nvfp4),
    ("fp4e2m1x32", DType::Mxfp4),
    ("ocpmxfp4", DType::Mxfp4),
];

impl FromStr for DType {
    type Err = String;

    /// Reads the word used in files, or another program's (`fp8_e4m3`, `gptq-int4`, `awq`). Upper
    /// and lower case, hyphens and underscores make no difference.
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = plain_word(text);
        let ours = Self::ALL.into_iter().find(|dtype| plain_word(dtype.name()) == plain);
        let theirs = || OTHER_WORDS.into_iter().find(|(word, _)| *word == plain).map(|(_, dtype)| dtype);
        ours.or_else(theirs).ok_or_else(|| {
            let near = nearest(text, Self::ALL.map(DType::name)).join(", ");
            format!("'{text}' is not a number format; the nearest are {near}")
        })
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Read as a text and not as an enum, so that messages about a table name its format.
impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
