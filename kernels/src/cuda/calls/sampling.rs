//! From logits to tokens.

use super::{Call, Program, Values, count};
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 1024;

/// The largest vocabulary: sums of so many masses of 2⁴⁰ fit 64 bits.
const MOST: usize = 1 << 23;

fn vocabulary(logits: Values<f32>, sequences: usize) -> usize {
    let vocabulary = logits.len().checked_div(sequences).unwrap_or(0);
    assert_eq!(logits.len(), sequences * vocabulary, "logits of {sequences} sequences");
    assert!(vocabulary <= MOST && (vocabulary > 0 || sequences == 0), "{vocabulary} tokens");
    vocabulary
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ArgmaxArguments {
    logits: u64,
    tokens: u64,
    vocabulary: i32,
    unused: i32,
}

/// [`crate::argmax`] of each of `tokens.len()` rows; 0 where nothing is a number.
pub fn argmax(tokens: Values<i32>, logits: Values<f32>) -> Call {
    let vocabulary = count(vocabulary(logits, tokens.len()));
    let arguments = ArgmaxArguments { logits: logits.address, tokens: tokens.address, vocabulary, unused: 0 };
    Call::new(Program::Sampling, "argmax", [tokens.len(), 1, 1], THREADS, arguments)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SampleArguments {
    logits: u64,
    uniforms: u64,
    tokens: u64,
    vocabulary: i32,
    top_k: i32,
    temperature: f32,
    top_p: f32,
}

/// A token of each row at random: of the `top_k` most probable, of those that together have `top_p` of their
/// probability, the one that `uniforms` (from 0 to below 1, one per row) falls on in the order of probability.
///
/// # Panics
/// Where `temperature` is not above 0, `top_k` is 0 or `top_p` not above 0 and at most 1.
pub fn sample(
    tokens: Values<i32>,
    logits: Values<f32>,
    uniforms: Values<f32>,
    temperature: f32,
    top_k: Option<usize>,
    top_p: Option<f32>,
) -> Call {
    let top_p = top_p.unwrap_or(1.0);
    assert!(temperature > 0.0 && temperature.is_finite() && top_k != Some(0) && top_p > 0.0 && top_p <= 1.0);
    let vocabulary = vocabulary(logits, tokens.len());
    let arguments = SampleArguments {
        logits: logits.address,
        uniforms: uniforms.holding(tokens.len(), "uniforms"),
        tokens: tokens.address,
        vocabulary: count(vocabulary),
        top_k: count(top_k.unwrap_or(0).min(vocabulary)),
        temperature,
        top_p,
    };
    Call::new(Program::Sampling, "sample", [tokens.len(), 1, 1], THREADS, arguments)
}
