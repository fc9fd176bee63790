//! The times of decode steps as a straight line in the tokens that they attend to, and sums along
//! that line.

use crate::clock::SimTime;

/// The time of a decode step of a given number of sequences. While they attend to `from..until`
/// tokens all together, it is `base + per_token · (tokens − from)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLine {
    /// The first number of tokens that it holds for.
    pub from: u64,
    /// The first number of tokens above `from` that it does not hold for; [`u64::MAX`] for a line
    /// without an end.
    pub until: u64,
    /// Picoseconds at `from`.
    pub base: u64,
    /// Picoseconds that each further token adds. If this is negative, the line stays above zero
    /// until `until`.
    pub per_token: i64,
}

impl StepLine {
    /// The line from `base` at `from` tokens to `end` at `until` tokens.
    pub fn through(from: u64, base: SimTime, until: u64, end: SimTime) -> Self {
        let rise = i128::from(end.picos()) - i128::from(base.picos());
        let per_token = rise / i128::from(until - from);
        Self { from, until, base: base.picos(), per_token: i64::try_from(per_token).unwrap_or(i64::MAX) }
    }

    /// The time of one step over `tokens`.
    pub fn at(&self, tokens: u64) -> SimTime {
        self.series(tokens, 0, 1)
    }

    /// The time of `steps` steps, the first over `tokens`, each over `growth` tokens more than the
    /// one before: Σ_{i < steps} base + per_token · (tokens − from + i · growth). Stops at
    /// [`SimTime::MAX`].
    pub fn series(&self, tokens: u64, growth: u64, steps: u64) -> SimTime {
        let (slope, steps) = (i128::from(self.per_token), i128::from(steps));
        let first = i128::from(self.base) + slope * (i128::from(tokens) - i128::from(self.from));
        let sum = steps * first + slope * i128::from(growth) * (steps * (steps - 1) / 2);
        u64::try_from(sum.max(0)).map_or(SimTime::MAX, SimTime::from_picos)
    }

    /// How many of at most `most` such steps begin less than `within` after the first. The first
    /// always counts.
    pub fn steps_begun(&self, tokens: u64, growth: u64, most: u64, within: SimTime) -> u64 {
        if most <= 1 || self.series(tokens, growth, most - 1) < within {
            return most;
        }
        // The last step begins when the others have ended.
        let (mut begun, mut too_many) = (1, most);
        while too_many - begun > 1 {
            let middle = begun.midpoint(too_many);
            match self.series(tokens, growth, middle - 1) < within {
                true => begun = middle,
                false => too_many = middle,
            }
        }
        begun
    }

    /// The same line with `time` added to every step.
    pub fn plus(self, time: SimTime) -> Self {
        Self { base: self.base.saturating_add(time.picos()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_series_is_the_sum_of_its_steps(
            base in 1_000_000u64..1_000_000_000, per_token in -3i64..40_000, from in 0u64..100_000,
            tokens in 0u64..100_000, growth in 0u64..500, steps in 0u64..200,
        ) {
            let line = StepLine { from, until: u64::MAX, base, per_token };
            let tokens = from + tokens;
            let sum: u64 = (0..steps).map(|step| line.at(tokens + step * growth).picos()).sum();
            prop_assert_eq!(line.series(tokens, growth, steps).picos(), sum);
        }

        #[test]
        fn steps_that_begin_in_time_are_counted(
            base in 1u64..1000, per_token in 0i64..40, growth in 0u64..50, most in 1u64..100, within in 0u64..100_000,
        ) {
            let line = StepLine { from: 0, until: u64::MAX, base, per_token };
            let counted = (1..most).filter(|&before| line.series(7, growth, before).picos() < within).count() as u64;
            prop_assert_eq!(line.steps_begun(7, growth, most, SimTime::from_picos(within)), counted + 1);
        }
    }
}
