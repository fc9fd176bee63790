//! The samples of one point.

use crate::method::rig::Rig;
use crate::method::statistics::{SampleSummary, summary};

/// Times of one call, in seconds, gathered over many visits.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleSeries(Vec<f64>);

/// Enough of them from one visit: more would only weigh that moment more.
const PER_VISIT: f64 = 64.0;
/// The first visit takes three, of which one may be disturbed, unless one takes as long as [`LONG`]. It takes no more,
/// since the machine has not settled: in the seconds after its first use, a virtual machine's memory was seen at half
/// its speed.
const FIRST: usize = 3;
/// A long call, in seconds.
const LONG: f64 = 0.02;
/// What takes longer, in seconds, needs no call to warm up: the caches' share of it is small.
const NEEDS_WARMING: f64 = 2e-3;

impl SampleSeries {
    /// Whether it has no samples yet: the first visit is the time to verify what is measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a sample taken elsewhere.
    pub fn push(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    /// Median and spread so far.
    pub fn summary(&self) -> Option<SampleSummary> {
        summary(&self.0)
    }

    /// Samples `call` for about as long as a visit lasts, at least once. What is short against the clock is called many
    /// times for one sample. A first call warms the team and the caches up and does not count, except in the first
    /// visit: there the kernel has just been called to be verified.
    ///
    /// How many samples to take is told by the fastest call known, not by the time that has passed: else a visit that
    /// was interrupted would end with the interrupted sample alone.
    pub fn visit(&mut self, rig: &Rig<'_>, mut call: impl FnMut()) {
        let first = self.is_empty();
        let mut fastest = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let mut samples = FIRST;
        if first {
            fastest = rig.clock.time(1, &mut call);
            if fastest > LONG {
                return self.push(fastest);
            }
        } else if fastest < NEEDS_WARMING {
            call();
        }
        let calls = rig.clock.calls(fastest);
        if !first {
            let visit = rig.visit.as_secs_f64() / (fastest * calls as f64);
            samples = visit.clamp(1.0, PER_VISIT) as usize;
        }
        (0..samples).for_each(|_| self.0.push(rig.clock.time(calls, &mut call)));
    }
}
