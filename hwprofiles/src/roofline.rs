//! Rates of a device of which only the datasheet is known: peak × a documented efficiency.
//!
//! Long products reach 60 % of the peak rate and streams 75 % of the peak bandwidth. Fits to measured
//! products of A100, H100, H200, B200 and L40S give 61–82 % and 72–87 %; the choice is the cautious end,
//! and the answers say [`Basis::Estimated`](crate::Basis::Estimated). A part that says what it achieved
//! ([`GpuPart::achieved`]) is taken at its word.

use crate::dtype::DType;
use crate::gemm::{GemmPoint, GemmRates};
use crate::parts::GpuPart;
use crate::provenance::{Provenance, Sourced};
use crate::ratio::Ratio;
use crate::units::{BytesPerSec, Flop, FlopPerSec, Seconds};
use std::fmt::Display;

const OF_PEAK_RATE: f64 = 0.6;
const OF_PEAK_BANDWIDTH: f64 = 0.75;

/// The shape whose table stands for all: large enough that a row's scales and padding do not matter.
const SIDE: u64 = 8192;

impl GpuPart {
    /// The rate that products with weights of `dtype` are expected to reach, where a peak is known. Where it is not,
    /// but products were measured, the fastest of them is taken for it: attention is slower than products.
    /// Storage formats without a peak of their own are widened to 16 bits and reach that peak.
    pub fn reached_peak(&self, dtype: DType) -> Option<Sourced<FlopPerSec>> {
        let widened = [DType::Bf16, DType::F16];
        let formats = match dtype {
            DType::Int8 | DType::Int4 | DType::Int2 => [&[dtype][..], &widened].concat(),
            _ => vec![dtype],
        };
        let peak = formats.iter().find_map(|format| Some((format, self.peak.get(format)?)));
        let Some((format, peak)) = peak else {
            let fastest = formats.iter().find_map(|format| self.gemm.get(format)?.fastest())?;
            return Some(reached(&fastest, None, OF_PEAK_RATE, |peak, share| peak * share));
        };
        let achieved = self.achieved.as_ref().and_then(|achieved| achieved.gemm.get(format));
        Some(reached(peak, achieved, OF_PEAK_RATE, |peak, share| peak * share))
    }

    /// The bandwidth that streams are expected to reach: what was measured, where it was.
    pub fn reached_bandwidth(&self) -> Sourced<BytesPerSec> {
        let peak = &self.bandwidth;
        if let Provenance::Measured { .. } = peak.source {
            return peak.clone();
        }
        let achieved = self.achieved.as_ref().and_then(|achieved| achieved.bandwidth.as_ref());
        reached(peak, achieved, OF_PEAK_BANDWIDTH, |peak, share| peak * share)
    }
}

/// What is reached of a peak: the share that was achieved, or the documented one.
fn reached<T: Copy + Display>(
    peak: &Sourced<T>,
    achieved: Option<&Sourced<Ratio>>,
    documented: f64,
    times: impl Fn(T, f64) -> T,
) -> Sourced<T> {
    let share = achieved.map_or(documented, |share| share.value.get());
    let why = achieved.map_or_else(String::new, |share| format!("; the share: {}", share.source));
    let reason = format!("{share} of the peak of {} ({}){why}", peak.value, peak.source);
    Sourced::estimated(times(peak.value, share), &reason)
}

impl GemmRates {
    /// The highest rate of its points.
    pub fn fastest(&self) -> Option<Sourced<FlopPerSec>> {
        let rate =
            |p: &GemmPoint| Flop::new(2 * u128::from(p.m) * u128::from(p.n) * u128::from(p.k)) / p.time;
        let value = self.points().iter().map(rate).max_by(|a, b| a.get().total_cmp(&b.get()))?;
        Some(Sourced { value, source: self.source.clone() })
    }

    /// A table that says max(FLOP / rate, weight bytes / bandwidth): one point on each side of the ridge is
    /// enough, since times are constant below the smallest m and proportional to m beyond the largest.
    pub fn roofline(dtype: DType, rate: FlopPerSec, bandwidth: BytesPerSec, source: Provenance) -> Self {
        let read = dtype.matrix_bytes(SIDE, SIDE) / bandwidth;
        let row = Flop::new(2 * u128::from(SIDE) * u128::from(SIDE)) / rate;
        let ridge = (read / row).floor() as u64;
        let point = |m, time| GemmPoint { m, n: SIDE, k: SIDE, time };
        let compute = point(ridge + 1, row * (ridge + 1) as f64);
        let points = if ridge == 0 { vec![compute] } else { vec![point(ridge, read), compute] };
        Self::new(source, points)
    }

    /// A table of times against rows, for square weights of `side` that stand for all shapes.
    pub(crate) fn by_rows(
        source: Provenance,
        side: u64,
        times: impl Iterator<Item = (u64, Seconds)>,
    ) -> Self {
        let points = times.map(|(m, time)| GemmPoint { m, n: side, k: side, time }).collect();
        Self::new(source, points)
    }
}
