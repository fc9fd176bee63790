//! The time that passes should have taken by the plan, beside the time that they took.

use std::collections::VecDeque;
use std::time::Duration;

/// Passes that are remembered. A request that has run for longer is compared since the first one.
const REMEMBERED: usize = 1 << 14;

/// A clock that runs, while a pass is made, as fast as the plan says that it should, and otherwise
/// as fast as time.
#[derive(Debug, Default)]
pub(crate) struct PlannedClock {
    /// In the order of time; they do not overlap.
    passes: VecDeque<PlannedPass>,
}

#[derive(Debug, Clone, Copy)]
struct PlannedPass {
    begin: Duration,
    end: Duration,
    /// Seconds that this clock is ahead of time, when the pass begins and when it ends.
    ahead: [f64; 2],
}

impl PlannedClock {
    /// Adds a pass that came after all others and should have taken `planned` seconds.
    pub(crate) fn add(&mut self, begin: Duration, end: Duration, planned: f64) {
        let before = self.passes.back().map_or(0.0, |pass| pass.ahead[1]);
        let after = before + planned - (end - begin).as_secs_f64();
        if self.passes.len() == REMEMBERED {
            self.passes.pop_front();
        }
        self.passes.push_back(PlannedPass { begin, end, ahead: [before, after] });
    }

    /// Seconds that pass on this clock from the time `from` until `until`.
    pub(crate) fn seconds_between(&self, from: Duration, until: Duration) -> f64 {
        let time = until.saturating_sub(from).as_secs_f64();
        time + self.ahead(until) - self.ahead(from)
    }

    fn ahead(&self, at: Duration) -> f64 {
        let index = self.passes.partition_point(|pass| pass.end < at);
        let Some(pass) = self.passes.get(index) else {
            return self.passes.back().map_or(0.0, |pass| pass.ahead[1]);
        };
        let length = (pass.end - pass.begin).as_secs_f64();
        if length == 0.0 {
            return pass.ahead[0];
        }
        let share = at.saturating_sub(pass.begin).as_secs_f64() / length;
        pass.ahead[0] + (pass.ahead[1] - pass.ahead[0]) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn passes_count_as_planned_and_the_time_between_them_as_it_was() {
        let mut clock = PlannedClock::default();
        clock.add(seconds(1.0), seconds(2.0), 0.5);
        clock.add(seconds(3.0), seconds(4.0), 4.0);
        for (from, until, wanted) in [
            (0.0, 1.0, 1.0),
            (1.0, 2.0, 0.5),
            (1.5, 2.0, 0.25),
            (2.0, 3.0, 1.0),
            (3.0, 3.25, 1.0),
            (0.0, 5.0, 1.0 + 0.5 + 1.0 + 4.0 + 1.0),
            (4.0, 9.0, 5.0),
        ] {
            let found = clock.seconds_between(seconds(from), seconds(until));
            assert!((found - wanted).abs() < 1e-9, "{from} to {until}: {found}");
        }
    }

    #[test]
    fn passes_that_take_as_long_as_planned_change_nothing_and_memory_is_bounded() {
        let mut clock = PlannedClock::default();
        for pass in 0..2 * REMEMBERED as u64 {
            let (begin, end) = (Duration::from_millis(2 * pass), Duration::from_millis(2 * pass + 1));
            clock.add(begin, end, 1e-3);
        }
        assert_eq!(clock.passes.len(), REMEMBERED);
        let last = Duration::from_millis(4 * REMEMBERED as u64);
        assert!((clock.seconds_between(Duration::ZERO, last) - last.as_secs_f64()).abs() < 1e-9);
    }
}
