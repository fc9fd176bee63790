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
        match self.small_step(tokens) {
            Some(time) => SimTime::from_picos(time.max(0) as u64),
            None => self.large_series(tokens, 0, 1),
        }
    }

    /// The time of one step in 64 bits.
    fn small_step(&self, tokens: u64) -> Option<i64> {
        let small = |number: u64| i64::try_from(number).ok();
        let later = small(tokens)? - small(self.from)?;
        small(self.base)?.checked_add(self.per_token.checked_mul(later)?)
    }

    /// The time of `steps` steps, the first over `tokens`, each over `growth` tokens more than the
    /// one before: Σ_{i < steps} base + per_token · (tokens − from + i · growth). Stops at
    /// [`SimTime::MAX`].
    pub fn series(&self, tokens: u64, growth: u64, steps: u64) -> SimTime {
        match self.small_series(tokens, growth, steps) {
            Some(sum) => SimTime::from_picos(sum.max(0) as u64),
            None => self.large_series(tokens, growth, steps),
        }
    }

    /// The sum in 64 bits, which are enough for three months.
    fn small_series(&self, tokens: u64, growth: u64, steps: u64) -> Option<i64> {
        let small = |number: u64| i64::try_from(number).ok();
        let (first, steps) = (self.small_step(tokens)?, small(steps)?);
        let pairs = steps.checked_mul(steps - 1)? / 2;
        let rise = self.per_token.checked_mul(small(growth)?)?.checked_mul(pairs)?;
        steps.checked_mul(first)?.checked_add(rise)
    }

    fn large_series(&self, tokens: u64, growth: u64, steps: u64) -> SimTime {
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
        let about = self.steps_in(tokens, growth, within);
        let mut near = [about, about + 1, about.saturating_sub(1)].into_iter();
        while too_many - begun > 1 {
            let middle = near.find(|steps| (begun + 1..too_many).contains(steps));
            let middle = middle.unwrap_or(begun.midpoint(too_many));
            match self.series(tokens, growth, middle - 1) < within {
                true => begun = middle,
                false => too_many = middle,
            }
        }
        begun
    }

    /// About how many such steps take `time`, rounded up: the root of their sum, which is a square
    /// in their number.
    fn steps_in(&self, tokens: u64, growth: u64, time: SimTime) -> u64 {
        let square = 0.5 * self.per_token as f64 * growth as f64;
        let linear = self.at(tokens).picos() as f64 - square;
        let root = (linear * linear + 4.0 * square * time.picos() as f64).sqrt();
        ((2.0 * time.picos() as f64 / (linear + root)).ceil() as u64).min(u64::MAX - 1)
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
        fn sixty_four_bits_give_what_more_bits_give(
            (base, per_token) in (any::<u64>(), -1_000_000i64..1 << 40), from in any::<u32>(),
            (tokens, growth, steps) in (any::<u32>(), 0u64..10_000, 0u64..1 << 24),
            shift in 0u32..64,
        ) {
            let line = StepLine { from: from.into(), until: u64::MAX, base: base >> shift, per_token };
            prop_assert_eq!(line.series(tokens.into(), growth, steps), line.large_series(tokens.into(), growth, steps));
            prop_assert_eq!(line.at(tokens.into()), line.large_series(tokens.into(), 0, 1));
        }

        #[test]
        fn steps_that_begin_in_time_are_counted(
            base in 1u64..1000, per_token in -1i64..40, growth in 0u64..50, most in 1u64..100, within in 0u64..100_000,
        ) {
            // A falling line stays above zero.
            let base = if per_token < 0 { base + 10_000 } else { base };
            let line = StepLine { from: 0, until: u64::MAX, base, per_token };
            let counted = (1..most).filter(|&before| line.series(7, growth, before).picos() < within).count() as u64;
            prop_assert_eq!(line.steps_begun(7, growth, most, SimTime::from_picos(within)), counted + 1);
        }
    }
}
