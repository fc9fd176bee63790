//! Random values, and comparisons of results.

pub use crate::noise::noise;
use half::bf16;
use kernels::{Path, Pool, affinity};

pub fn narrow(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&value| bf16::from_f32(value).to_bits()).collect()
}

pub fn widen(values: &[u16]) -> Vec<f32> {
    values.iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect()
}

/// Random values that bf16 represents exactly.
pub fn short(len: usize, seed: u64) -> Vec<f32> {
    widen(&narrow(&noise(len, seed)))
}

pub fn pool() -> Pool {
    Pool::new(&affinity::available_cores()[..1]).expect("our core").with_path(Path::Reference)
}

/// Expects values that differ by at most `slack`.
pub fn assert_close(got: &[f32], wanted: &[f32], slack: f32, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((got - wanted).abs() <= slack, "{what}: {got} at {i}, not {wanted}");
    }
}

/// Expects bf16 values that differ by rounding and at most `slack` before it.
pub fn assert_near(got: &[u16], wanted: &[f32], slack: f32, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (got, wanted)) in widen(got).iter().zip(wanted).enumerate() {
        let error = (got - wanted).abs();
        assert!(error <= wanted.abs() / 256.0 + slack, "{what}: {got} at {i}, not {wanted}");
    }
}
