//! Normalisation over the last axis.

use crate::Pool;
use crate::disjoint::Disjoint;
use crate::vector::{each_row, sum};

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

/// Adds the RMS norm of each row: y += x / √(mean(x²) + ε) · γ. `x` and `y` are rows of `gamma.len()` values.
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

/// Layer norm of each row: y = (x − mean) / √(variance + ε) · γ + β. `x` and `y` are rows of `gamma.len()`
/// values; the variance is the population's.
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

/// RMS norm of each head of each row, in place (Qwen3 normalises queries and keys so). A row is `stride` values
/// after the one before and starts with `heads` heads of `gamma.len()` values.
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
    assert!(stride >= heads * head_dim || rows <= 1);
    let x = Disjoint::new(x);
    crate::vector::each_chunk(pool, rows, heads * head_dim, |row| {
        // SAFETY: rows do not overlap, and each is one item.
        let row = unsafe { x.range(row * stride, heads * head_dim) };
        for head in row.chunks_exact_mut(head_dim) {
            let inverse = 1.0 / (sum(head, |x| x * x) / head_dim as f32 + epsilon).sqrt();
            head.iter_mut().zip(gamma).for_each(|(x, gamma)| *x *= inverse * gamma);
        }
    });
}
