//! The samples of one point.

use crate::rig::Rig;
use crate::statistics::{Summary, summary};

/// Times of one call, in seconds, gathered over many visits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(Vec<f64>);

/// Enough of them from one visit: more would only weigh that moment more.
const PER_VISIT: f64 = 64.0;
/// The first visit takes three, of which one may be disturbed, unless one takes as long as this, in seconds.
const FIRST: (f64, f64) = (3.0, 0.05);
/// What takes longer, in seconds, needs no call to warm up: the caches' share of it is small.
const NEEDS_WARMING: f64 = 2e-3;

impl Series {
    /// Whether it has no samples yet: the first visit is the time to verify what is measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a sample taken elsewhere.
    pub fn push(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    /// Median and spread so far.
    pub fn summary(&self) -> Option<Summary> {
        summary(&self.0)
    }

    /// Samples `call` for about as long as a visit lasts, at least once. What is short against the clock is called many
    /// times for one sample; the first call warms the team and the caches up and does not count.
    ///
    /// How many samples to take is told by the fastest call known, not by the time that has passed: else a visit that
    /// was interrupted would end with the interrupted sample alone.
    pub fn visit(&mut self, rig: &Rig<'_>, mut call: impl FnMut()) {
        let first = self.is_empty();
        let mut fastest = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        if first || fastest < NEEDS_WARMING {
            fastest = fastest.min(rig.clock.time(1, &mut call));
        }
        let calls = rig.clock.calls(fastest);
        let sample = fastest * calls as f64;
        let least = if first && sample < FIRST.1 { FIRST.0 } else { 1.0 };
        let samples = (rig.visit.as_secs_f64() / sample).clamp(least, PER_VISIT) as usize;
        (0..samples).for_each(|_| self.0.push(rig.clock.time(calls, &mut call)));
    }
}
