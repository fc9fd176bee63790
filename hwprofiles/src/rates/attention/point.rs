//! Measured attention: one row of a table.

use crate::rates::attention::shape::{AttentionShape, Phase};
use crate::statistics::{CONTRADICTION, median};
use crate::units::Seconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One measured call of attention.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "AttentionRow", into = "AttentionRow")]
pub struct AttentionPoint {
    /// What was computed.
    pub shape: AttentionShape,
    /// Median time of one call, without the fork-join or launch.
    pub time: Seconds,
}

/// One row of the table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttentionRow {
    phase: Phase,
    batch: u64,
    new_tokens: u64,
    past_tokens: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    #[serde(with = "crate::files::table::microseconds")]
    time_us: Seconds,
}

/// The largest count: products of seven counts must not overflow.
const LARGEST: u64 = 1 << 32;

impl AttentionPoint {
    /// The points in the order of their shapes. A shape that was measured more than once has the
    /// median of its times.
    ///
    /// # Errors
    /// Times of one shape differ by more than a factor of 2, or there is no point.
    pub fn merged(points: &[Self]) -> Result<Vec<Self>, String> {
        let mut times: BTreeMap<AttentionShape, Vec<f64>> = BTreeMap::new();
        for point in points {
            times.entry(point.shape).or_default().push(point.time.get());
        }
        if times.is_empty() {
            return Err("the table is empty: give at least one point".to_owned());
        }
        let merged = |(shape, times): (AttentionShape, Vec<f64>)| {
            let low = times.iter().copied().fold(f64::INFINITY, f64::min);
            let high = times.iter().copied().fold(0.0, f64::max);
            if high > CONTRADICTION * low {
                let (low, high) = (Seconds::new(low), Seconds::new(high));
                return Err(format!("{shape} is said to take {low} and {high}: keep the right line"));
            }
            let time = Seconds::new(median(&times).expect("a shape has at least one time"));
            Ok(Self { shape, time })
        };
        times.into_iter().map(merged).collect()
    }
}

impl TryFrom<AttentionRow> for AttentionPoint {
    type Error = String;

    fn try_from(row: AttentionRow) -> Result<Self, String> {
        let AttentionRow { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim, time_us } = row;
        let shape = AttentionShape { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim };
        Self::new(shape, time_us)
    }
}

impl AttentionPoint {
    /// A point of a shape that can be measured: its counts are above zero and the heads divide
    /// evenly.
    pub(super) fn new(shape: AttentionShape, time: Seconds) -> Result<Self, String> {
        let AttentionShape { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim } = shape;
        let counts = [
            ("batch", batch, 1),
            ("new_tokens", new_tokens, 1),
            ("past_tokens", past_tokens, 0),
            ("heads", heads, 1),
            ("kv_heads", kv_heads, 1),
            ("head_dim", head_dim, 1),
        ];
        for (column, count, least) in counts {
            if !(least..=LARGEST).contains(&count) {
                return Err(format!("{column} is {count}: write a whole number from {least} to {LARGEST}"));
            }
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!("kv_heads is {kv_heads}, which does not divide the {heads} heads"));
        }
        if phase == Phase::Decode && new_tokens != 1 {
            return Err(format!("new_tokens is {new_tokens}, but a decode has 1 per sequence"));
        }
        Ok(Self { shape, time })
    }
}

impl From<AttentionPoint> for AttentionRow {
    fn from(AttentionPoint { shape, time }: AttentionPoint) -> Self {
        let AttentionShape { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim } = shape;
        Self { phase, batch, new_tokens, past_tokens, heads, kv_heads, head_dim, time_us: time }
    }
}

/// The points as a block of CSV, one per shape.
pub(super) mod table {
    use super::AttentionPoint;
    pub(in super::super) use crate::files::table::serialize;
    use serde::{Deserializer, de::Error};

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<AttentionPoint>, D::Error> {
        AttentionPoint::merged(&crate::files::table::deserialize::<AttentionPoint, D>(deserializer)?)
            .map_err(D::Error::custom)
    }
}
