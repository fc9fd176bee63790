//! A duration that was both predicted and measured.

use crate::numbers::serde_forms::in_seconds;
use crate::numbers::statistics::relative_error;
use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::AddAssign;

/// A predicted and a measured duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "PairRecord", from = "PairRecord")]
pub struct Pair {
    /// The prediction.
    pub predicted: Seconds,
    /// The measurement.
    pub measured: Seconds,
}

impl Pair {
    /// Signed relative error, predicted ÷ measured − 1. `None` where nothing was measured.
    pub fn error(&self) -> Option<f64> {
        relative_error(self.predicted.get(), self.measured.get())
    }

    /// Both as numbers of seconds, for statistics and axes.
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

/// The form in files. The error is written for readers and ignored when read.
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
