//! A duration that was predicted and measured, and how durations stand in results: as numbers of seconds under
//! names that end in `_s`.

use crate::statistics::relative_error;
use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::AddAssign;

/// One duration, twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "PairRecord", from = "PairRecord")]
pub struct Pair {
    /// What the model said.
    pub predicted: Seconds,
    /// What the clock said.
    pub measured: Seconds,
}

impl Pair {
    /// Signed relative error, predicted ÷ measured − 1. `None` where nothing was measured.
    pub fn error(&self) -> Option<f64> {
        relative_error(self.predicted.get(), self.measured.get())
    }

    /// The two as plain numbers of seconds, for statistics and axes.
    pub(crate) fn seconds(&self) -> (f64, f64) {
        (self.predicted.get(), self.measured.get())
    }
}

impl AddAssign for Pair {
    fn add_assign(&mut self, other: Self) {
        self.predicted += other.predicted;
        self.measured += other.measured;
    }
}

impl Sum for Pair {
    fn sum<I: Iterator<Item = Self>>(pairs: I) -> Self {
        pairs.fold(Self::default(), |mut total, pair| {
            total += pair;
            total
        })
    }
}

/// A pair in a file. The error is written for readers and computed anew when read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairRecord {
    #[serde(with = "in_seconds")]
    predicted_s: Seconds,
    #[serde(with = "in_seconds")]
    measured_s: Seconds,
    #[serde(default)]
    error: Option<f64>,
}

impl From<Pair> for PairRecord {
    fn from(pair: Pair) -> Self {
        Self { predicted_s: pair.predicted, measured_s: pair.measured, error: pair.error() }
    }
}

impl From<PairRecord> for Pair {
    fn from(record: PairRecord) -> Self {
        Self { predicted: record.predicted_s, measured: record.measured_s }
    }
}

/// Durations as numbers of seconds, for fields whose names end in `_s`.
pub(crate) mod in_seconds {
    use hwprofiles::Seconds;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Seconds, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        f64::deserialize(deserializer).map(Seconds::new)
    }
}

/// Durations that need not exist, as numbers of seconds or null.
pub(crate) mod maybe_in_seconds {
    use hwprofiles::Seconds;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Option<Seconds>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(Seconds::get).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Seconds>, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.map(Seconds::new))
    }
}

/// Lists of which JSON holds one element per line, so that a person can read and diff them.
pub(crate) mod line_by_line {
    use serde::ser::Error;
    use serde::{Serialize, Serializer};
    use serde_json::value::to_raw_value;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        rows: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let lines: Result<Vec<_>, _> = rows.iter().map(to_raw_value).collect();
        lines.map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Sizes as numbers of bytes, for fields whose names end in `_bytes`.
pub(crate) mod in_bytes {
    use hwprofiles::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(size.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        u64::deserialize(deserializer).map(Bytes::new)
    }
}

/// Sizes that need not exist, as numbers of bytes or null.
pub(crate) mod maybe_in_bytes {
    use hwprofiles::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
        size.map(Bytes::get).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Bytes::new))
    }
}
