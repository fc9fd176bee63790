//! Sampling of a token from logits.
//!
//! Probabilities are counted in integers, whose sums do not depend on the order of additions. So
//! the CPU and a GPU (`cuda/device/sampling.cu`) choose the same token for the same random number.

use bytemuck::{Pod, Zeroable};

/// The integer that stands for the largest probability; others are in proportion. The sum of 2²³ of
/// them fits 64 bits.
const ONE: f32 = (1u64 << 40) as f32;

/// How one token is sampled.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct SamplingParams {
    /// The random number that picks the token in the order of probability: from 0 to below 1.
    pub uniform: f32,
    /// Divides the logits; 0 takes the most probable token.
    pub temperature: f32,
    /// Keeps only the most probable tokens that together have this share of the probability that
    /// `top_k` leaves; 1 keeps all.
    pub top_p: f32,
    /// Keeps only this number of the most probable tokens; 0 keeps all.
    pub top_k: i32,
}

impl SamplingParams {
    /// Takes the most probable token, the first of equals.
    pub const GREEDY: Self = Self { uniform: 0.0, temperature: 0.0, top_p: 1.0, top_k: 0 };
}

/// The sort key of a token: a larger key is more probable, and of equal logits the earlier token
/// has the larger key. The upper half is the logit in a form that compares as an integer, 0 for
/// NaN. The lower half is the token, inverted.
fn sort_key(logit: f32, token: usize) -> u64 {
    // Both zeros are equal.
    let bits = if logit == 0.0 { 0 } else { logit.to_bits() };
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(if logit.is_nan() { 0 } else { ordered }) << 32 | u64::from(!(token as u32))
}

fn token_of(key: u64) -> usize {
    !(key as u32) as usize
}

/// Samples a token from `logits`; returns 0 where all are NaN. `keys` is working memory.
pub fn sample(logits: &[f32], params: SamplingParams, keys: &mut Vec<u64>) -> usize {
    let key = |(token, &logit): (usize, &f32)| sort_key(logit, token);
    let first = logits.iter().enumerate().map(key).max().unwrap_or(0);
    if first >> 32 == 0 || params.temperature == 0.0 {
        return if first >> 32 == 0 { 0 } else { token_of(first) };
    }
    keys.clear();
    keys.extend(logits.iter().enumerate().map(key));
    if let Some(k @ 1..) = usize::try_from(params.top_k).ok().filter(|&k| k < keys.len()) {
        keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        keys.truncate(k);
    }
    keys.sort_unstable_by(|a, b| b.cmp(a));
    let largest = logits[token_of(first)];
    let mass = |key: &u64| match logits[token_of(*key)] {
        // Infinity minus infinity is NaN, so the largest logit is compared and not subtracted.
        logit if logit == largest => ONE as u64,
        logit if logit < largest => (((logit - largest) / params.temperature).exp() * ONE) as u64,
        _ => 0,
    };
    // The index at which the sum of masses first reaches the target.
    let reach = |keys: &[u64], target: u64| {
        let mut sum = 0;
        let at = keys.iter().position(|key| {
            sum += mass(key);
            sum >= target
        });
        at.unwrap_or(keys.len() - 1)
    };
    let mut total: u64 = keys.iter().map(mass).sum();
    if params.top_p < 1.0 {
        let target = (f64::from(params.top_p) * total as f64).ceil() as u64;
        keys.truncate(reach(keys, target.max(1)) + 1);
        total = keys.iter().map(mass).sum();
    }
    token_of(keys[reach(keys, (f64::from(params.uniform) * total as f64) as u64 + 1)])
}
