//! A measured curve over working-set or transfer size.

use crate::files::{Refusal, refuse_if};
use crate::rates::estimate::Basis;
use crate::units::{Bytes, Checked, Provenance, Seconds, distinct, positive};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::ops::{Add, Mul};

/// One measured point of a [`Curve`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint<Y> {
    /// The size at which it was measured.
    pub size: Bytes,
    /// What was measured, with its unit.
    pub value: Y,
}

/// A measured quantity (a latency, a bandwidth) as a function of size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve<Y> {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, in any order; at least one.
    #[serde(deserialize_with = "crate::units::checked")]
    #[serde(bound(deserialize = "Y: Deserialize<'de> + PartialOrd + Default + std::fmt::Display"))]
    pub points: Vec<CurvePoint<Y>>,
}

/// A value read off a curve, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveReading<Y> {
    /// The value.
    pub value: Y,
    /// How it was found: [`Basis::Extrapolated`] outside the measured sizes.
    pub basis: Basis,
}

impl<Y: Copy + Add<Output = Y> + Mul<f64, Output = Y>> Curve<Y> {
    /// The value at `size`: linear in log(size) between measured points, and the nearest point's
    /// value, as [`Basis::Extrapolated`], outside them. `None` without points.
    pub fn at(&self, size: Bytes) -> Option<CurveReading<Y>> {
        let below = self.points.iter().filter(|p| p.size <= size).max_by_key(|p| p.size);
        let above = self.points.iter().filter(|p| p.size >= size).min_by_key(|p| p.size);
        let (value, basis) = match (below, above) {
            (Some(a), Some(b)) if a.size == b.size => (a.value, Basis::Measured),
            (Some(a), Some(b)) => {
                let log = |bytes: Bytes| bytes.as_f64().max(1.0).ln();
                let span = log(b.size) - log(a.size);
                let weight = if span > 0.0 { (log(size) - log(a.size)) / span } else { 0.0 };
                (a.value * (1.0 - weight) + b.value * weight, Basis::Interpolated)
            }
            (Some(one), None) | (None, Some(one)) => (one.value, Basis::Extrapolated),
            (None, None) => return None,
        };
        Some(CurveReading { value, basis: basis.sourced(&self.source) })
    }

    /// The value at the largest measured size, which is past every cache.
    pub fn at_largest(&self) -> Option<Y> {
        self.points.iter().max_by_key(|p| p.size).map(|p| p.value)
    }
}

impl Curve<Seconds> {
    /// The time for `bytes`: linear in bytes between measured points, the smallest point's time
    /// below them, and the largest point's rate beyond them. `None` without points.
    pub fn time_of(&self, bytes: Bytes) -> Option<Seconds> {
        let below = self.points.iter().filter(|p| p.size <= bytes).max_by_key(|p| p.size);
        let above = self.points.iter().filter(|p| p.size >= bytes).min_by_key(|p| p.size);
        match (below, above) {
            (Some(a), Some(b)) if a.size < b.size => {
                let weight = bytes.saturating_sub(a.size).as_f64() / b.size.saturating_sub(a.size).as_f64();
                Some(a.value * (1.0 - weight) + b.value * weight)
            }
            (Some(_), Some(one)) | (None, Some(one)) => Some(one.value),
            (Some(one), None) => Some(one.value * (bytes.as_f64() / one.size.as_f64().max(1.0))),
            (None, None) => None,
        }
    }
}

impl<Y: PartialOrd + Default + Display> Checked for Vec<CurvePoint<Y>> {
    fn check(&self) -> Result<(), String> {
        self.iter().try_for_each(|p| positive(&p.value))?;
        distinct(self.iter().map(|p| p.size), "size")
    }
}

/// Refuses a curve of transfer times that falls.
pub(crate) fn check_times(times: &Curve<Seconds>) -> Result<(), Refusal> {
    let mut points: Vec<_> = times.points.iter().collect();
    points.sort_by_key(|p| p.size);
    for pair in points.windows(2) {
        let message = format!(
            "{} takes {}, but {} only {}: more bytes never take less time, measure again on a quiet machine",
            pair[0].size, pair[0].value, pair[1].size, pair[1].value
        );
        refuse_if(pair[1].value < pair[0].value, &["points"], message)?;
    }
    Ok(())
}
