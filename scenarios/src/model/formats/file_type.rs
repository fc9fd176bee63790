//! The kinds of files that llama.cpp quantises: mixtures of formats, each with a word.

use hwprofiles::{DType, nearest};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// A kind of GGUF file. Most tensors have its [`GgufFileType::base`] format; which others have more
/// or fewer bits follows from the model's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are llama.cpp's")]
pub enum GgufFileType {
    Q2K,
    Q2KS,
    Q3KS,
    Q3KM,
    Q3KL,
    Q4_0,
    Q4_1,
    Q4KS,
    Q4KM,
    Q5_0,
    Q5_1,
    Q5KS,
    Q5KM,
    Q6K,
    Q8_0,
    Iq1S,
    Iq1M,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq2M,
    Iq3Xxs,
    Iq3Xs,
    Iq3S,
    Iq3M,
    Iq4Nl,
    Iq4Xs,
    Mxfp4Moe,
}

impl GgufFileType {
    /// Every kind, with its word, its base format and llama.cpp's number of it
    /// (`general.file_type`).
    pub const ALL: [(Self, &'static str, DType, u64); 28] = [
        (Self::Q2K, "q2_k", DType::Q2K, 10),
        (Self::Q2KS, "q2_k_s", DType::Q2K, 21),
        (Self::Q3KS, "q3_k_s", DType::Q3K, 11),
        (Self::Q3KM, "q3_k_m", DType::Q3K, 12),
        (Self::Q3KL, "q3_k_l", DType::Q3K, 13),
        (Self::Q4_0, "q4_0", DType::Q4_0, 2),
        (Self::Q4_1, "q4_1", DType::Q4_1, 3),
        (Self::Q4KS, "q4_k_s", DType::Q4K, 14),
        (Self::Q4KM, "q4_k_m", DType::Q4K, 15),
        (Self::Q5_0, "q5_0", DType::Q5_0, 8),
        (Self::Q5_1, "q5_1", DType::Q5_1, 9),
        (Self::Q5KS, "q5_k_s", DType::Q5K, 16),
        (Self::Q5KM, "q5_k_m", DType::Q5K, 17),
        (Self::Q6K, "q6_k", DType::Q6K, 18),
        (Self::Q8_0, "q8_0", DType::Q8_0, 7),
        (Self::Iq1S, "iq1_s", DType::Iq1S, 24),
        (Self::Iq1M, "iq1_m", DType::Iq1M, 31),
        (Self::Iq2Xxs, "iq2_xxs", DType::Iq2Xxs, 19),
        (Self::Iq2Xs, "iq2_xs", DType::Iq2Xs, 20),
        (Self::Iq2S, "iq2_s", DType::Iq2Xs, 28),
        (Self::Iq2M, "iq2_m", DType::Iq2S, 29),
        (Self::Iq3Xxs, "iq3_xxs", DType::Iq3Xxs, 23),
        (Self::Iq3Xs, "iq3_xs", DType::Iq3S, 22),
        (Self::Iq3S, "iq3_s", DType::Iq3S, 26),
        (Self::Iq3M, "iq3_m", DType::Iq3S, 27),
        (Self::Iq4Nl, "iq4_nl", DType::Iq4Nl, 25),
        (Self::Iq4Xs, "iq4_xs", DType::Iq4Xs, 30),
        (Self::Mxfp4Moe, "mxfp4_moe", DType::Mxfp4, 38),
    ];

    fn entry(self) -> (Self, &'static str, DType, u64) {
        Self::ALL[self as usize]
    }

    /// The word used in files.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// The format of most of its tensors.
    pub fn base(self) -> DType {
        self.entry().2
    }

    /// The kind with this number in a file's `general.file_type`.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|entry| entry.3 == number).map(|entry| entry.0)
    }

    /// Whether it is made with an importance matrix, as these kinds are published.
    pub(crate) fn has_importance(self) -> bool {
        self.name().starts_with("iq")
    }

    /// The kind that `word` names, in lower or upper case, with hyphens or underscores.
    pub(crate) fn find(word: &str) -> Option<Self> {
        let plain = word.to_lowercase().replace('-', "_");
        Self::ALL.into_iter().find(|entry| entry.1 == plain).map(|entry| entry.0)
    }
}

impl fmt::Display for GgufFileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GgufFileType {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::find(word).ok_or_else(|| {
            let near = nearest(word, Self::ALL.map(|entry| entry.1)).join(", ");
            format!("'{word}' is not a kind of GGUF files; the nearest are {near}")
        })
    }
}

impl Serialize for GgufFileType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for GgufFileType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
