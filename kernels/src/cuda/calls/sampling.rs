//! The call that samples tokens from logits.

use super::call::{KernelCall, count};
use super::slice::GpuSlice;
use crate::cpu::SamplingParams;
use crate::cuda::program::GpuProgram;
use bytemuck::{Pod, Zeroable};

const THREADS: u32 = 1024;

/// The largest vocabulary: the sum of this many masses of 2⁴⁰ fits 64 bits.
const MOST: usize = 1 << 23;

fn vocabulary(logits: GpuSlice<f32>, sequences: usize) -> usize {
    let vocabulary = logits.len().checked_div(sequences).unwrap_or(0);
    assert_eq!(logits.len(), sequences * vocabulary, "logits of {sequences} sequences");
    assert!(vocabulary <= MOST && (vocabulary > 0 || sequences == 0), "{vocabulary} tokens");
    vocabulary
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SampleArguments {
    logits: u64,
    choices: u64,
    tokens: u64,
    vocabulary: i32,
    unused: i32,
}

/// As [`crate::sample`], for each of `tokens.len()` rows. Where a logit is NaN or infinite the
/// token is −1. The parameters must be valid; a GPU does not check them.
pub fn sample(tokens: GpuSlice<i32>, logits: GpuSlice<f32>, choices: GpuSlice<SamplingParams>) -> KernelCall {
    let vocabulary = vocabulary(logits, tokens.len());
    let arguments = SampleArguments {
        logits: logits.address,
        choices: choices.holding(tokens.len(), "choices"),
        tokens: tokens.address,
        vocabulary: count(vocabulary),
        unused: 0,
    };
    KernelCall::new(GpuProgram::Sampling, "sample", [tokens.len(), 1, 1], THREADS, arguments)
}
