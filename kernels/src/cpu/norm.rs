//! Normalisation of rows: RMS norm and layer norm.

use crate::cpu::strided::holds;
use crate::cpu::vector::{each_chunk, each_row, sum};
use crate::runtime::Disjoint;
use crate::runtime::Pool;

/// RMS norm of each row: y = x / √(mean(x²) + ε) · γ. `x` and `y` are rows of `gamma.len()` values.
///
/// # Panics
/// Where the lengths do not agree.
pub fn rms_norm(pool: &Pool, y: &mut [f32], x: &[f32], gamma: &[f32], epsilon: f32) {
    each_row(pool, y, x, gamma.len(), |y, x| {
        let inverse = 1.0 / (sum(x, |x| x * x) / x.len() as f32 + epsilon).sqrt();
        for ((y, x), gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y = x * inverse * gamma;
        }
    });
}

/// Adds the RMS norm of each row: y += x / √(mean(x²) + ε) · γ. `x` and `y` are rows of
/// `gamma.len()` values.
///
/// # Panics
/// Where the lengths do not agree.
pub fn add_rms_norm(pool: &Pool, y: &mut [f32], x: &[f32], gamma: &[f32], epsilon: f32) {
    each_row(pool, y, x, gamma.len(), |y, x| {
        let inverse = 1.0 / (sum(x, |x| x * x) / x.len() as f32 + epsilon).sqrt();
        for ((y, x), gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y += x * inverse * gamma;
        }
    });
}

/// Layer norm of each row: y = (x − mean) / √(variance + ε) · γ + β. `x` and `y` are rows of
/// `gamma.len()` values; the variance is the population's.
///
/// # Panics
/// Where the lengths do not agree.
pub fn layer_norm(pool: &Pool, y: &mut [f32], x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32) {
    assert_eq!(gamma.len(), beta.len());
    each_row(pool, y, x, gamma.len(), |y, x| {
        let mean = sum(x, |x| x) / x.len() as f32;
        let variance = sum(x, |x| (x - mean) * (x - mean)) / x.len() as f32;
        let inverse = 1.0 / (variance + epsilon).sqrt();
        for (((y, x), gamma), beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
            *y = (x - mean) * inverse * gamma + beta;
        }
    });
}

/// RMS norm of each head of each row, in place, as Qwen 3 normalises queries and keys. Rows lie
/// `stride` values apart, and each starts with `heads` heads of `gamma.len()` values.
///
/// # Panics
/// Where `x` is too short.
pub fn rms_norm_heads(
    pool: &Pool,
    x: &mut [f32],
    rows: usize,
    stride: usize,
    heads: usize,
    gamma: &[f32],
    epsilon: f32,
) {
    let head_dim = gamma.len();
    let width = heads.checked_mul(head_dim).filter(|&width| holds(x.len(), rows, stride, width));
    let width =
        width.unwrap_or_else(|| panic!("{rows} rows of {heads} heads, {stride} apart, in {}", x.len()));
    let x = Disjoint::new(x);
    each_chunk(pool, rows, width, |row| {
        // SAFETY: by the check above rows do not overlap; each row is one item.
        let row = unsafe { x.range(row * stride, width) };
        for head in row.chunks_exact_mut(head_dim) {
            let inverse = 1.0 / (sum(head, |x| x * x) / head_dim as f32 + epsilon).sqrt();
            head.iter_mut().zip(gamma).for_each(|(x, gamma)| *x *= inverse * gamma);
        }
    });
}
