//! The distribution of a latency, in memory that does not grow with the number of requests.

use crate::clock::SimTime;
use serde::{Deserialize, Serialize};

/// Statistics of times in seconds. The mean is exact. Percentiles come from a histogram with bins
/// 0.1 % wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyStats {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Bins of an octave. None is wider than a thousandth of the latencies in it.
const BINS_PER_OCTAVE: u64 = 1 << 10;

/// The distribution of one latency. Each nanosecond up to twice [`BINS_PER_OCTAVE`] has a bin of
/// its own. Each octave above has [`BINS_PER_OCTAVE`] bins.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatencyHistogram {
    /// By bin.
    counts: Vec<u64>,
    count: u64,
    /// In picoseconds.
    sum: u128,
    max: SimTime,
}

impl LatencyHistogram {
    /// Counts a latency `times` times.
    pub fn add(&mut self, time: SimTime, times: u64) {
        self.sum += u128::from(time.picos()) * u128::from(times);
        self.max = self.max.max(time);
        self.count += times;
        let bin = bin(time.nanos());
        if bin >= self.counts.len() {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += times;
    }

    /// Adds what another histogram has counted.
    pub fn join(&mut self, other: &Self) {
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// The statistics of all latencies; zero if there are none.
    pub fn stats(&self) -> LatencyStats {
        if self.count == 0 {
            return LatencyStats::default();
        }
        let max = self.max.to_seconds().get();
        let at = |quantile: f64| (self.quantile(quantile) as f64 * 1e-9).min(max);
        LatencyStats {
            mean: self.sum as f64 / self.count as f64 * 1e-12,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max,
        }
    }

    /// The last nanosecond of the bin that holds the `quantile` by nearest rank.
    fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((quantile * self.count as f64).ceil() as u64).max(1);
        let mut below = 0;
        let reaches = |count: &u64| {
            below += count;
            below >= rank
        };
        self.counts.iter().position(reaches).map_or(0, |bin| first_nanosecond(bin + 1) - 1)
    }
}

/// The bin of a number of nanoseconds.
fn bin(nanos: u64) -> usize {
    let octave = (nanos / BINS_PER_OCTAVE).checked_ilog2().unwrap_or(0);
    (u64::from(octave) * BINS_PER_OCTAVE + (nanos >> octave)) as usize
}

/// The first nanosecond of a bin.
fn first_nanosecond(bin: usize) -> u64 {
    let octave = (bin as u64 / BINS_PER_OCTAVE).saturating_sub(1);
    (bin as u64 - octave * BINS_PER_OCTAVE) << octave
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_latency_is_in_the_bin_that_begins_last_before_it(nanos in any::<u64>(), shift in 11u32..64) {
            let nanos = nanos >> shift;
            let bin = bin(nanos);
            prop_assert!(first_nanosecond(bin) <= nanos && nanos < first_nanosecond(bin + 1));
            let width = first_nanosecond(bin + 1) - first_nanosecond(bin);
            prop_assert!(width == 1 || width as f64 <= 1e-3 * nanos as f64);
        }

        #[test]
        fn a_quantile_is_that_of_the_sorted_latencies_to_a_thousandth(
            nanos in prop::collection::vec(0u64..10_000_000_000, 1..200), split in 0usize..200,
        ) {
            let mut both = [LatencyHistogram::default(), LatencyHistogram::default()];
            for (index, &nanos) in nanos.iter().enumerate() {
                both[usize::from(index < split)].add(SimTime::from_nanos(nanos), 1);
            }
            let [mut all, rest] = both;
            all.join(&rest);
            let mut sorted = nanos.clone();
            sorted.sort_unstable();
            let LatencyStats { p50, p90, p95, p99, max, .. } = all.stats();
            for (quantile, got) in [(0.5, p50), (0.9, p90), (0.95, p95), (0.99, p99), (1.0, max)] {
                let rank = (quantile * sorted.len() as f64).ceil() as usize;
                let exact = sorted[rank - 1] as f64 * 1e-9;
                // The largest one is converted from picoseconds.
                prop_assert!((exact * (1.0 - 1e-12)..=exact * 1.001).contains(&got), "{got} for {exact}");
            }
        }
    }
}
