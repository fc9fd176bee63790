//! From logits to a token, as a GPU chooses it too (`cuda/device/sampling.cu`): by sums of integers, which depend on no
//! order, so that one number gives one token wherever the logits are.

use bytemuck::{Pod, Zeroable};

/// A probability is so many times its share of the largest, as a whole number. 2²³ of them fit 64 bits.
const ONE: f32 = (1u64 << 40) as f32;

/// How one token is chosen.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Choice {
    /// Where the token lies in the order of probability: from 0 to below 1.
    pub uniform: f32,
    /// Divides the logits; 0 takes the most probable token.
    pub temperature: f32,
    /// Only the most probable tokens that together have this share of what `top_k` leaves; 1 keeps all.
    pub top_p: f32,
    /// Only so many of the most probable; 0 keeps all.
    pub top_k: i32,
}

impl Choice {
    /// The most probable token, the first of equals.
    pub const GREEDY: Self = Self { uniform: 0.0, temperature: 0.0, top_p: 1.0, top_k: 0 };
}

/// Larger is more probable, and of equals earlier. The upper half is the logit, made to be compared as an integer, and 0
/// where it is no number; the lower the token, inverted.
fn key_of(logit: f32, token: usize) -> u64 {
    // Zeros are equal whatever their sign.
    let bits = if logit == 0.0 { 0 } else { logit.to_bits() };
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(if logit.is_nan() { 0 } else { ordered }) << 32 | u64::from(!(token as u32))
}

fn token_of(key: u64) -> usize {
    !(key as u32) as usize
}

/// The token that `choice` takes of `logits`; 0 where nothing is a number. `keys` is memory to work in.
pub fn sample(logits: &[f32], choice: Choice, keys: &mut Vec<u64>) -> usize {
    let of = |(token, &logit): (usize, &f32)| key_of(logit, token);
    let first = logits.iter().enumerate().map(of).max().unwrap_or(0);
    if first >> 32 == 0 || choice.temperature == 0.0 {
        return if first >> 32 == 0 { 0 } else { token_of(first) };
    }
    keys.clear();
    keys.extend(logits.iter().enumerate().map(of));
    if let Some(k @ 1..) = usize::try_from(choice.top_k).ok().filter(|&k| k < keys.len()) {
        keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        keys.truncate(k);
    }
    keys.sort_unstable_by(|a, b| b.cmp(a));
    let largest = logits[token_of(first)];
    let mass = |key: &u64| match logits[token_of(*key)] {
        // Infinity less infinity is no number.
        logit if logit == largest => ONE as u64,
        logit if logit < largest => (((logit - largest) / choice.temperature).exp() * ONE) as u64,
        _ => 0,
    };
    // Where the sum of masses first reaches so much.
    let reach = |keys: &[u64], target: u64| {
        let mut sum = 0;
        let at = keys.iter().position(|key| {
            sum += mass(key);
            sum >= target
        });
        at.unwrap_or(keys.len() - 1)
    };
    let mut total: u64 = keys.iter().map(mass).sum();
    if choice.top_p < 1.0 {
        let target = (f64::from(choice.top_p) * total as f64).ceil() as u64;
        keys.truncate(reach(keys, target.max(1)) + 1);
        total = keys.iter().map(mass).sum();
    }
    token_of(keys[reach(keys, (f64::from(choice.uniform) * total as f64) as u64 + 1)])
}
