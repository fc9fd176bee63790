//! The clock, and what reading it costs.

use std::time::Instant;

/// A calibrated clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CalibratedClock {
    /// Seconds between two readings with nothing between them.
    overhead: f64,
}

/// A sample lasts at least this many times as long as reading the clock.
const TIMES_OVERHEAD: f64 = 200.0;

impl CalibratedClock {
    /// Measures the clock itself.
    pub fn calibrate() -> Self {
        let reading = || {
            let start = Instant::now();
            start.elapsed().as_secs_f64()
        };
        let mut readings: Vec<f64> = (0..1001).map(|_| reading()).collect();
        readings.sort_by(f64::total_cmp);
        // At least a nanosecond, since a coarse clock may show no cost.
        Self { overhead: readings[readings.len() / 2].max(1e-9) }
    }

    /// Seconds per call of `calls` consecutive calls, without the clock's own cost; above zero.
    pub fn time(&self, calls: usize, mut call: impl FnMut()) -> f64 {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        let elapsed = start.elapsed().as_secs_f64();
        (elapsed - self.overhead).max(elapsed / 2.0).max(1e-12) / calls as f64
    }

    /// How many calls of `seconds` each make one sample.
    pub fn calls(&self, seconds: f64) -> usize {
        (TIMES_OVERHEAD * self.overhead / seconds).ceil().clamp(1.0, 1e5) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_is_timed_many_times_over_and_long_work_once() {
        let clock = CalibratedClock { overhead: 25e-9 };
        assert_eq!(clock.calls(1e-9), 5000);
        assert_eq!(clock.calls(1e-3), 1);
        assert_eq!(clock.calls(1e-12), 100_000);
    }

    #[test]
    fn a_time_is_never_zero() {
        assert!(CalibratedClock::calibrate().time(1, || {}) > 0.0);
    }
}
