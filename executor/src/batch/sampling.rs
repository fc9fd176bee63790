//! The choice of the next token from logits.

use crate::error::ExecutorError;
use kernels::SamplingParams;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// The most probable token; the first of equal ones.
    Greedy,
    /// A random token. The same seed gives the same tokens.
    Random {
        /// Divides the logits; above 0. A value below 1 makes probable tokens more probable.
        temperature: f32,
        /// Keeps only this many of the most probable tokens; at least 1.
        top_k: Option<usize>,
        /// Keeps only the most probable tokens that together have this probability; above 0, at
        /// most 1.
        top_p: Option<f32>,
        /// Seed of the random numbers.
        seed: u64,
    },
}

impl Sampling {
    /// Refuses values out of range.
    ///
    /// # Errors
    /// [`ExecutorError::Refused`], which names the value.
    pub fn check(&self) -> Result<(), ExecutorError> {
        let Self::Random { temperature, top_k, top_p, .. } = *self else { return Ok(()) };
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(ExecutorError::refused("sampling.temperature", temperature, "above 0, or greedy"));
        }
        if top_k == Some(0) {
            return Err(ExecutorError::refused("sampling.top_k", 0, "at least 1"));
        }
        match top_p {
            Some(p) if !(p > 0.0 && p <= 1.0) => {
                Err(ExecutorError::refused("sampling.top_p", p, "above 0 and at most 1"))
            }
            _ => Ok(()),
        }
    }

    /// The sampling of one of several sequences: each has its own random numbers.
    pub(crate) fn for_sequence(self, index: u64) -> Self {
        match self {
            Self::Greedy => Self::Greedy,
            Self::Random { temperature, top_k, top_p, seed } => {
                Self::Random { temperature, top_k, top_p, seed: seed.wrapping_add(index) }
            }
        }
    }
}

/// Chooses tokens of one sequence.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    random: Pcg64Mcg,
    /// Working memory.
    keys: Vec<u64>,
}

impl Sampler {
    /// A sampler for values that are in range.
    pub fn new(sampling: Sampling) -> Result<Self, ExecutorError> {
        sampling.check()?;
        let seed = if let Sampling::Random { seed, .. } = sampling { seed } else { 0 };
        Ok(Self { sampling, random: Pcg64Mcg::seed_from_u64(seed), keys: Vec::new() })
    }

    /// The parameters of the next choice, with the next random number.
    pub fn next_choice(&mut self) -> SamplingParams {
        let Sampling::Random { temperature, top_k, top_p, .. } = self.sampling else {
            return SamplingParams::GREEDY;
        };
        // 24 bits: as many as an f32 holds.
        let uniform = (self.random.next_u32() >> 8) as f32 / (1 << 24) as f32;
        let top_k = top_k.and_then(|k| i32::try_from(k).ok()).unwrap_or(0);
        SamplingParams { uniform, temperature, top_p: top_p.unwrap_or(1.0), top_k }
    }

    /// The next token of one sequence.
    pub fn next(&mut self, logits: &[f32]) -> u32 {
        let choice = self.next_choice();
        kernels::sample(logits, choice, &mut self.keys) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(temperature: f32, top_k: Option<usize>, top_p: Option<f32>) -> Sampler {
        Sampler::new(Sampling::Random { temperature, top_k, top_p, seed: 5 }).expect("valid")
    }

    fn shares(mut sampler: Sampler, logits: &[f32]) -> Vec<f64> {
        let mut counts = vec![0; logits.len()];
        (0..20_000).for_each(|_| counts[sampler.next(logits) as usize] += 1);
        counts.into_iter().map(|count: i32| f64::from(count) / 20_000.0).collect()
    }

    #[test]
    fn tokens_are_drawn_as_often_as_the_softmax_says() {
        let logits = [1.0f32, 3.0, 2.0, -1.0];
        for temperature in [0.5, 1.0, 2.0] {
            let weights = logits.map(|logit| f64::from(logit / temperature).exp());
            let total: f64 = weights.iter().sum();
            for (share, weight) in shares(random(temperature, None, None), &logits).iter().zip(weights) {
                // Four deviations of a share of 20,000 draws are at most 0.0142.
                assert!((share - weight / total).abs() < 0.0142, "{share} for {}", weight / total);
            }
        }
    }

    #[test]
    fn top_k_and_top_p_leave_only_the_most_probable() {
        let logits = [1.0, 3.0, 2.0, -1.0];
        let drawn = |sampler| shares(sampler, &logits).iter().map(|&share| share > 0.0).collect::<Vec<_>>();
        assert_eq!(drawn(random(1.0, Some(2), None)), [false, true, true, false]);
        assert_eq!(drawn(random(1.0, Some(1), None)), [false, true, false, false]);
        // The softmax is 0.090, 0.665, 0.245, not counting 0.012 of the last token.
        assert_eq!(drawn(random(1.0, None, Some(0.6))), [false, true, false, false]);
        assert_eq!(drawn(random(1.0, None, Some(0.7))), [false, true, true, false]);
        assert_eq!(drawn(random(1.0, None, Some(1.0))), [true, true, true, true]);
    }

    #[test]
    fn the_same_seed_draws_the_same_tokens() {
        let logits: Vec<f32> = (0..500).map(|i| (i * 37 % 101) as f32 / 20.0).collect();
        let draw = || {
            let mut sampler = random(1.3, Some(100), Some(0.95));
            (0..50).map(|_| sampler.next(&logits)).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for (temperature, top_k, top_p, key) in [
            (0.0, None, None, "temperature"),
            (f32::NAN, None, None, "temperature"),
            (1.0, Some(0), None, "top_k"),
            (1.0, None, Some(0.0), "top_p"),
            (1.0, None, Some(1.1), "top_p"),
        ] {
            let refused = Sampler::new(Sampling::Random { temperature, top_k, top_p, seed: 0 });
            assert!(refused.expect_err("nonsense").to_string().contains(key));
        }
    }
}
