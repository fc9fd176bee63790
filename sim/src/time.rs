//! Simulated time: whole nanoseconds since the simulation began, and spans of them.

use hwprofiles::Seconds;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point, or a span, of simulated time in whole nanoseconds.
///
/// Integers make simulated time exact: the order of two events never hangs on a rounding error, and the same
/// inputs give the same bytes on every machine. Model time ([`Seconds`]) enters through
/// [`SimTime::rounding_up`] alone, so that rounding can only make a simulation slower, never beat its roofline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimTime(u64);

impl SimTime {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// Beyond every simulation: about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// So many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The least whole number of nanoseconds that is not below `time`; [`SimTime::MAX`] where that does not fit.
    ///
    /// # Panics
    /// Where `time` is negative or not a number: profiles are checked when read, so that is a mistake of ours.
    pub fn rounding_up(time: Seconds) -> Self {
        assert!(time.get() >= 0.0, "{} s is not a duration", time.get());
        Self(time.to_nanos_ceil())
    }

    /// As model time, for reports.
    pub fn to_seconds(self) -> Seconds {
        Seconds::from_nanos(self.0)
    }

    /// `self − earlier`, or zero where that would be negative.
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

/// The span since an earlier point. Panics where `earlier` is later: time does not run backwards.
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
        fn conversion_rounds_up_by_less_than_a_nanosecond(seconds in 0.0..1e6f64) {
            let nanos = SimTime::rounding_up(Seconds::new(seconds)).nanos() as f64;
            let exact = seconds * 1e9;
            prop_assert!(nanos >= exact && nanos < exact + 1.0);
        }

        #[test]
        fn whole_nanoseconds_survive_the_way_through_seconds_within_one(nanos in 0u64..1 << 50) {
            let back = SimTime::rounding_up(SimTime::from_nanos(nanos).to_seconds()).nanos();
            prop_assert!(back.abs_diff(nanos) <= 1);
        }
    }

    #[test]
    fn what_does_not_fit_is_the_end_of_time() {
        assert_eq!(SimTime::rounding_up(Seconds::new(f64::INFINITY)), SimTime::MAX);
        assert_eq!(SimTime::rounding_up(Seconds::new(1e12)), SimTime::MAX);
        assert_eq!(SimTime::MAX + SimTime::from_nanos(1), SimTime::MAX);
    }

    #[test]
    #[should_panic(expected = "not a duration")]
    fn a_duration_that_is_not_a_number_is_refused() {
        SimTime::rounding_up(Seconds::new(f64::NAN));
    }

    #[test]
    #[should_panic(expected = "not a duration")]
    fn a_negative_duration_is_refused() {
        SimTime::rounding_up(Seconds::new(-1e-9));
    }

    #[test]
    #[should_panic(expected = "backwards")]
    fn time_does_not_run_backwards() {
        let _ = SimTime::ZERO - SimTime::from_nanos(1);
    }
}
