//! Matrix products of a device of which only peak rates are known.

use crate::rates::gemm::point::GemmPoint;
use crate::rates::gemm::rates::GemmRates;
use crate::units::{BytesPerSec, DType, Flop, FlopPerSec, Provenance, Seconds, Sourced};

impl GemmRates {
    /// The highest rate of its points.
    pub fn fastest(&self) -> Option<Sourced<FlopPerSec>> {
        let rate =
            |p: &GemmPoint| Flop::new(2 * u128::from(p.m) * u128::from(p.n) * u128::from(p.k)) / p.time;
        let value = self.points().iter().map(rate).max_by(|a, b| a.get().total_cmp(&b.get()))?;
        Some(Sourced { value: value * self.speedup.compute.get(), source: self.source.clone() })
    }

    /// The fastest at which a point reads its weights, which are `dtype`.
    pub fn best_read(&self, dtype: DType) -> Option<BytesPerSec> {
        let rates = self.points().iter().map(|p| dtype.matrix_bytes(p.n, p.k) / p.time);
        rates.max_by(BytesPerSec::total_cmp).map(|rate| rate * self.speedup.memory.get())
    }

    /// A table for max(FLOP / rate, weight bytes / bandwidth). One point on each side of the ridge
    /// is enough: times are constant below the smallest m and proportional to m beyond the largest.
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

/// The side of the weights that stand for all shapes: so large that a row's scales and padding do
/// not matter.
const SIDE: u64 = 8192;
