//! What decode steps take: a straight line in the tokens that they attend to, and sums along it.

use super::picos::Picos;

/// What a decode step of a given number of sequences takes while the tokens that they attend to, all together, are in
/// `from..until`: `base + per_token · (tokens − from)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The first number of tokens that it holds for.
    pub from: u64,
    /// The first that it does not hold for.
    pub until: u64,
    /// Picoseconds at `from`.
    pub base: u64,
    /// Picoseconds more for each further token; where it falls, it stays above zero until `until`.
    pub per_token: i64,
}

impl Line {
    /// From `base` at `from` tokens to `end` at `until`, which it does not reach.
    pub fn through(from: u64, base: Picos, until: u64, end: Picos) -> Self {
        let rise = i128::from(end.0) - i128::from(base.0);
        let per_token = rise / i128::from(until - from);
        Self { from, until, base: base.0, per_token: i64::try_from(per_token).unwrap_or(i64::MAX) }
    }

    /// One step over `tokens`.
    pub fn at(&self, tokens: u64) -> Picos {
        Picos(self.series(tokens, 0, 1).0)
    }

    /// `steps` steps, the first over `tokens`, each over `more` tokens more than the one before:
    /// Σ_{i < steps} base + per_token · (tokens − from + i · more). Stops at [`Picos::MAX`].
    pub fn series(&self, tokens: u64, more: u64, steps: u64) -> Picos {
        let (slope, steps) = (i128::from(self.per_token), i128::from(steps));
        let first = i128::from(self.base) + slope * (i128::from(tokens) - i128::from(self.from));
        let sum = steps * first + slope * i128::from(more) * (steps * (steps - 1) / 2);
        Picos(u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
    }

    /// How many of at most `most` such steps begin less than `within` after the first: the first always does.
    pub fn begun(&self, tokens: u64, more: u64, most: u64, within: Picos) -> u64 {
        if most <= 1 || self.series(tokens, more, most - 1) < within {
            return most;
        }
        // The last step begins when the others have ended.
        let (mut begun, mut not) = (1, most);
        while not - begun > 1 {
            let middle = begun.midpoint(not);
            match self.series(tokens, more, middle - 1) < within {
                true => begun = middle,
                false => not = middle,
            }
        }
        begun
    }

    /// The same with `more` for every step.
    pub fn plus(self, more: Picos) -> Self {
        Self { base: self.base.saturating_add(more.0), ..self }
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
            tokens in 0u64..100_000, more in 0u64..500, steps in 0u64..200,
        ) {
            let line = Line { from, until: u64::MAX, base, per_token };
            let tokens = from + tokens;
            let sum: u64 = (0..steps).map(|step| line.at(tokens + step * more).0).sum();
            prop_assert_eq!(line.series(tokens, more, steps).0, sum);
        }

        #[test]
        fn steps_that_begin_in_time_are_counted(
            base in 1u64..1000, per_token in 0i64..40, more in 0u64..50, most in 1u64..100, within in 0u64..100_000,
        ) {
            let line = Line { from: 0, until: u64::MAX, base, per_token };
            let counted = (1..most).filter(|&before| line.series(7, more, before).0 < within).count() as u64;
            prop_assert_eq!(line.begun(7, more, most, Picos(within)), counted + 1);
        }
    }
}
