//! Sums that stand for many steps, if the work of each step is a polynomial.

use hwprofiles::MissingRate;

/// Sums over pairs of numbers n ≥ 1 and p ≥ 0. They suffice to add up any function of the form
/// `f(n, p) = a + b·n + c·n² + d·p + e·n·p` over these pairs. They use Newton's basis: its
/// coefficients are differences of values of f, so they are whole if the values are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PolynomialSums {
    /// Σ 1.
    count: u128,
    /// Σ (n − 1).
    n: u128,
    /// Σ (n − 1)(n − 2) ÷ 2.
    nn: u128,
    /// Σ p.
    p: u128,
    /// Σ (n − 1)·p.
    np: u128,
}

impl PolynomialSums {
    /// Adds `times` pairs with the same `n`. The first has `p`, and each further one has `rise`
    /// more.
    pub fn add(&mut self, n: u64, p: u64, rise: u64, times: u64) {
        // Pairs of tokens, and of steps, are counted in 64 bits.
        let pairs = |number: u64| u128::from(number * number.saturating_sub(1) / 2);
        let (new_pairs, step_pairs) = (pairs(n - 1), pairs(times));
        let [n, p, rise, times] = [n - 1, p, rise, times].map(u128::from);
        let sum = times * p + rise * step_pairs;
        self.count += times;
        self.n += times * n;
        self.nn += times * new_pairs;
        self.p += sum;
        self.np += n * sum;
    }

    /// Calls `f` with a few pairs and the weight of each. The weighted sum of the values at these
    /// pairs is the sum over all pairs.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn total(
        &self,
        mut f: impl FnMut(u64, u64, i128) -> Result<(), MissingRate>,
    ) -> Result<(), MissingRate> {
        let [count, n, nn, p, np] = [self.count, self.n, self.nn, self.p, self.np].map(|sum| sum as i128);
        // f(1, 0), its first and second difference along n, its difference along p, and the
        // difference of that along n.
        for (at, weight) in [
            ((1, 0), count - n + nn - p + np),
            ((2, 0), n - 2 * nn - np),
            ((3, 0), nn),
            ((1, 1), p - np),
            ((2, 1), np),
        ] {
            if weight != 0 {
                f(at.0, at.1, weight)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_of_polynomials_are_those_of_their_values(
            series in prop::collection::vec((1u64..300, 0u64..5000, 0u64..50, 0u64..40), 0..6),
            coefficients in prop::array::uniform5(-1000i128..1000),
        ) {
            let [a, b, c, d, e] = coefficients;
            let f = |n: u64, p: u64| {
                let (n, p) = (i128::from(n), i128::from(p));
                a + b * n + c * n * n + d * p + e * n * p
            };
            let (mut sums, mut literal, mut sum) = (PolynomialSums::default(), 0, 0);
            for (n, p, rise, times) in series {
                sums.add(n, p, rise, times);
                literal += (0..times).map(|step| f(n, p + step * rise)).sum::<i128>();
            }
            sums.total(|n, p, weight| { sum += weight * f(n, p); Ok(()) }).unwrap();
            prop_assert_eq!(sum, literal);
        }
    }
}
