//! Softmax, and the index of the largest value.

use crate::cpu::exponential::exponential;
use crate::cpu::vector::{maximum, sum};

/// Softmax of one row, in place; an empty row stays empty.
pub fn softmax(x: &mut [f32]) {
    let largest = maximum(x, f32::NEG_INFINITY);
    x.iter_mut().for_each(|x| *x = exponential(*x - largest));
    let total = sum(x, |x| x);
    x.iter_mut().for_each(|x| *x /= total);
}

/// The index of the largest value, the first of equals; `None` for an empty row. NaN is never the
/// largest.
pub fn argmax(x: &[f32]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (index, &value) in x.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, largest)| value > largest) {
            best = Some((index, value));
        }
    }
    best.map(|(index, _)| index)
}
