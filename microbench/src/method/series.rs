//! The samples of one point.

use crate::method::rig::Rig;
use crate::method::sample_summary::{SampleSummary, summary};

/// Times of one call, in seconds, gathered over many visits.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleSeries(Vec<f64>);

/// The most samples of one visit. More would only give that moment more weight.
const PER_VISIT: f64 = 64.0;
/// Samples of the first visit, unless one call takes longer than [`LONG`]: three, of which one may
/// be disturbed. There are no more, since the machine has not settled: in the first seconds of use,
/// a virtual machine's memory was seen at half its speed.
const FIRST: usize = 3;
/// A long call, in seconds.
const LONG: f64 = 0.02;
/// A call that takes longer, in seconds, needs no call to warm up, since the caches matter little
/// to it.
const NEEDS_WARMING: f64 = 2e-3;

impl SampleSeries {
    /// Whether it has no samples yet. The first visit verifies what is measured.
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

    /// Samples `call` for about the duration of a visit, at least once. A short call is repeated
    /// for one sample. A first call warms up the team and the caches and does not count, except in
    /// the first visit, where the kernel has just been called for verification.
    ///
    /// The number of samples follows from the fastest known call and not from the time that has
    /// passed. Otherwise a visit that was interrupted would have the interrupted sample alone.
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
