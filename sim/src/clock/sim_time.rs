//! The one type for simulated time: whole picoseconds.

use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point, or a span, of simulated time in whole picoseconds. The range is 213 days.
///
/// Integers make simulated time exact: the order of two events never depends on a rounding error,
/// and the same inputs give the same bytes on every machine. Picoseconds are fine enough for
/// serving, where one more token of context adds a few nanoseconds to a step. Model time
/// ([`Seconds`]) enters through [`SimTime::rounding_up`] alone, so rounding can make a simulation
/// slower but never faster than its roofline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimTime(u64);

/// The grid that a conversion from model time rounds up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// The tasks of one step: traces record whole nanoseconds.
    Nanosecond,
    /// Serving: a series of steps is exact only if each token of context adds a whole number.
    Picosecond,
}

const PICOS_PER_NANO: u64 = 1000;

impl SimTime {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// The end of simulated time, after [`SimTime::MAX_DAYS`] days. Additions stop here.
    pub const MAX: Self = Self(u64::MAX);
    /// A day.
    pub const DAY: Self = Self::from_nanos(86_400_000_000_000);
    /// The whole days that simulated time has.
    pub const MAX_DAYS: u64 = Self::MAX.0 / Self::DAY.0;

    /// `picos` picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// `nanos` nanoseconds, or [`SimTime::MAX`] if that does not fit.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos.saturating_mul(PICOS_PER_NANO))
    }

    /// The picoseconds.
    pub const fn picos(self) -> u64 {
        self.0
    }

    /// The whole nanoseconds, rounded down.
    pub const fn nanos(self) -> u64 {
        self.0 / PICOS_PER_NANO
    }

    /// The least whole number of ticks that is not below `time`, or [`SimTime::MAX`] if that does
    /// not fit.
    ///
    /// # Panics
    /// If `time` is negative or not a number: profiles are checked when read, so that is our own
    /// mistake.
    pub fn rounding_up(time: Seconds, tick: Tick) -> Self {
        assert!(time.get() >= 0.0, "{} s is not a duration", time.get());
        match tick {
            Tick::Nanosecond => Self::from_nanos(time.to_nanos_ceil()),
            Tick::Picosecond => Self(time.to_picos_ceil()),
        }
    }

    /// As model time.
    pub fn to_seconds(self) -> Seconds {
        Seconds::new(self.0 as f64 * 1e-12)
    }

    /// `count` times this span, at most [`SimTime::MAX`].
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// `self − earlier`, or zero if that is negative.
    pub fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Stops at [`SimTime::MAX`].
impl Add for SimTime {
    type Output = Self;
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// Stops at [`SimTime::MAX`].
impl AddAssign for SimTime {
    fn add_assign(&mut self, span: Self) {
        *self = *self + span;
    }
}

/// The span since an earlier point. Panics if `earlier` is later: time does not run backwards.
impl Sub for SimTime {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self(self.0.checked_sub(earlier.0).expect("time does not run backwards"))
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_seconds().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn conversion_rounds_up_by_less_than_a_tick(seconds in 0.0..1e6f64) {
            let nanos = SimTime::rounding_up(Seconds::new(seconds), Tick::Nanosecond).nanos() as f64;
            let exact = seconds * 1e9;
            prop_assert!(nanos >= exact && nanos < exact + 1.0);
            let picos = SimTime::rounding_up(Seconds::new(seconds * 1e-3), Tick::Picosecond).picos() as f64;
            let exact = seconds * 1e-3 * 1e12;
            prop_assert!(picos >= exact && picos < exact + 1.0);
        }

        #[test]
        fn whole_nanoseconds_survive_the_way_through_seconds_within_one(nanos in 0u64..1 << 50) {
            let seconds = SimTime::from_nanos(nanos).to_seconds();
            let back = SimTime::rounding_up(seconds, Tick::Nanosecond).nanos();
            prop_assert!(back.abs_diff(nanos) <= 1);
        }
    }

    #[test]
    fn a_duration_that_does_not_fit_is_the_end_of_time() {
        for tick in [Tick::Nanosecond, Tick::Picosecond] {
            assert_eq!(SimTime::rounding_up(Seconds::new(f64::INFINITY), tick), SimTime::MAX);
            assert_eq!(SimTime::rounding_up(Seconds::new(1e12), tick), SimTime::MAX);
        }
        assert_eq!(SimTime::from_nanos(u64::MAX), SimTime::MAX);
        assert_eq!(SimTime::MAX + SimTime::from_picos(1), SimTime::MAX);
    }

    #[test]
    #[should_panic(expected = "not a duration")]
    fn a_duration_that_is_not_a_number_is_refused() {
        SimTime::rounding_up(Seconds::new(f64::NAN), Tick::Picosecond);
    }

    #[test]
    #[should_panic(expected = "not a duration")]
    fn a_negative_duration_is_refused() {
        SimTime::rounding_up(Seconds::new(-1e-9), Tick::Nanosecond);
    }

    #[test]
    #[should_panic(expected = "backwards")]
    fn time_does_not_run_backwards() {
        let _ = SimTime::ZERO - SimTime::from_nanos(1);
    }
}
