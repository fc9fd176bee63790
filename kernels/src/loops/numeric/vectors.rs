//! Sums and products of vectors.

use super::{LINE, vectorised};
use crate::loops::parts::{each_part, part};
use crate::runtime::Pool;
use std::sync::Mutex;

/// y = a·x + y. FLOP: 2 per value. Bytes: 8 read and 4 written per value.
///
/// # Panics
/// Where the lengths differ.
pub fn axpy(pool: &Pool, y: &mut [f32], a: f32, x: &[f32]) {
    assert_eq!(y.len(), x.len());
    each_part(pool, y, LINE, |range, y| {
        vectorised(pool, || y.iter_mut().zip(&x[range]).for_each(|(y, x)| *y += a * x));
    });
}

/// y = x + a·y. FLOP: 2 per value. Bytes: 8 read and 4 written per value.
///
/// # Panics
/// Where the lengths differ.
pub fn xpay(pool: &Pool, y: &mut [f32], a: f32, x: &[f32]) {
    assert_eq!(y.len(), x.len());
    each_part(pool, y, LINE, |range, y| {
        vectorised(pool, || y.iter_mut().zip(&x[range]).for_each(|(y, x)| *y = x + a * *y));
    });
}

/// Σ xᵢ·yᵢ. FLOP: 2 per value. Bytes: 8 per value, or 4 where both are one vector.
///
/// # Panics
/// Where the lengths differ.
pub fn dot(pool: &Pool, x: &[f32], y: &[f32]) -> f64 {
    assert_eq!(x.len(), y.len());
    let sums = Mutex::new(vec![0.0; pool.members()]);
    pool.run(|member, of| {
        let range = part(x.len(), LINE, member, of);
        let sum = vectorised(pool, || dot_alone(&x[range.clone()], &y[range]));
        if let Ok(mut sums) = sums.lock() {
            sums[member] = sum;
        }
    });
    sums.into_inner().map(|sums| sums.iter().sum()).unwrap_or(f64::NAN)
}

/// Values that are summed in f32 before their sum is added in f64.
const BLOCK: usize = 4096;
/// Sums that do not wait for each other.
const LANES: usize = 64;

#[inline(always)]
fn dot_alone(x: &[f32], y: &[f32]) -> f64 {
    x.chunks(BLOCK).zip(y.chunks(BLOCK)).map(|(x, y)| dot_of_block(x, y)).sum()
}

#[inline(always)]
fn dot_of_block(x: &[f32], y: &[f32]) -> f64 {
    let mut lanes = [0.0_f32; LANES];
    let (x, y) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f32 = x.remainder().iter().zip(y.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in x.zip(y) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    f64::from(rest) + lanes.iter().copied().map(f64::from).sum::<f64>()
}
