//! Activation functions.

use crate::Pool;
use crate::disjoint::Disjoint;
use crate::exponential::exponential;
use crate::vector::{each_chunk, each_row_in_place};

/// out = silu(gate) · up, with silu(x) = x / (1 + e⁻ˣ). `out` is rows of `columns` values; `gate` and `up` have
/// rows of as many values, `stride` apart: `columns` for two arrays, 2·`columns` where one product made both.
///
/// # Panics
/// Where the lengths do not agree.
pub fn silu_mul(pool: &Pool, out: &mut [f32], gate: &[f32], up: &[f32], stride: usize, columns: usize) {
    if out.is_empty() {
        return;
    }
    assert!(out.len().is_multiple_of(columns), "{} values are not rows of {columns}", out.len());
    let rows = out.len() / columns;
    let out = Disjoint::new(out);
    each_chunk(pool, rows, columns, |row| {
        let (gate, up) = (&gate[row * stride..][..columns], &up[row * stride..][..columns]);
        // SAFETY: rows do not overlap, and each is one item.
        let out = unsafe { out.range(row * columns, columns) };
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exponential(-gate)) * up;
        }
    });
}

/// x = max(x, 0).
pub fn relu(pool: &Pool, x: &mut [f32]) {
    in_place(pool, x, |x| x.max(0.0));
}

/// x = GELU(x) by its tanh approximation: x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))).
pub fn gelu_tanh(pool: &Pool, x: &mut [f32]) {
    in_place(pool, x, |x| {
        let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
        // (1 + tanh(z)) / 2 = 1 / (1 + e^(−2z)).
        x / (1.0 + exponential(-2.0 * inner))
    });
}

/// x = GELU(x) = x · Φ(x) = x/2 · (1 + erf(x/√2)).
///
/// erf by Abramowitz and Stegun 7.1.26 (absolute error 1.5·10⁻⁷).
pub fn gelu_erf(pool: &Pool, x: &mut [f32]) {
    in_place(pool, x, |x| 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)));
}

#[inline(always)]
fn erf(x: f32) -> f32 {
    let z = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let mut p = 1.061_405_4;
    for coefficient in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = p * t + coefficient;
    }
    (1.0 - p * t * exponential(-z * z)).copysign(x)
}

fn in_place(pool: &Pool, x: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    let columns = x.len().clamp(1, 1 << 12);
    let (whole, rest) = x.split_at_mut(x.len() - x.len() % columns);
    let apply = |x: &mut [f32]| x.iter_mut().for_each(|x| *x = f(*x));
    each_row_in_place(pool, whole, columns, apply);
    apply(rest);
}
