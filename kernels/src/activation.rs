//! Activation functions.

use crate::disjoint::Disjoint;
use crate::exponential::exponential;
use crate::vector::{Rows, compute, each_range, each_row_in_place};
use crate::{PANEL, Pool};
use std::marker::PhantomData;

/// out = silu(gate) · up, with silu(x) = x / (1 + e⁻ˣ): relative error below 4·10⁻⁷ for gates above −87, and
/// below at most 10⁻³⁸ of gate · up. `out` is rows of `columns` values; `gate` and `up` have
/// rows of as many values, `stride` apart: `columns` for two arrays, 2·`columns` where one product made both.
///
/// # Panics
/// Where the lengths do not agree.
pub fn silu_mul(pool: &Pool, out: &mut [f32], gate: &[f32], up: &[f32], stride: usize, columns: usize) {
    gated::<Silu>(pool, out, gate, up, stride, columns);
}

/// out = gelu(gate) · up, with GELU by its tanh approximation (see [`gelu_tanh`]); shapes as [`silu_mul`]'s.
///
/// # Panics
/// Where the lengths do not agree.
pub fn gelu_mul(pool: &Pool, out: &mut [f32], gate: &[f32], up: &[f32], stride: usize, columns: usize) {
    gated::<GeluTanh>(pool, out, gate, up, stride, columns);
}

fn gated<F: Function>(pool: &Pool, out: &mut [f32], gate: &[f32], up: &[f32], stride: usize, columns: usize) {
    if out.is_empty() {
        return;
    }
    assert!(out.len().is_multiple_of(columns), "{} values are not rows of {columns}", out.len());
    let rows = out.len() / columns;
    let out = Disjoint::new(out);
    each_range(pool, rows, columns, |rows| {
        let [gate, up] = [gate, up].map(|x| &x[rows.start * stride..][..(rows.len() - 1) * stride + columns]);
        // SAFETY: ranges do not overlap, and each is one item.
        let out = unsafe { out.range(rows.start * columns, rows.len() * columns) };
        compute(pool.path(), Gated::<F> { out, gate, up, stride, columns, function: PhantomData });
    });
}

struct Gated<'a, F> {
    out: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
    stride: usize,
    columns: usize,
    function: PhantomData<F>,
}

impl<F: Function> Rows for Gated<'_, F> {
    #[inline(always)]
    fn compute(self) {
        let (gate, up) = (self.gate.chunks(self.stride), self.up.chunks(self.stride));
        let rows = self.out.chunks_exact_mut(self.columns).zip(gate).zip(up);
        if self.columns != PANEL {
            return rows.for_each(|((out, gate), up)| gate_row::<F>(out, gate, up));
        }
        // Gate and up in panels of a product's rows: a length that is known becomes one or two vectors without a loop.
        for ((out, gate), up) in rows {
            let out: &mut [f32; PANEL] = out.try_into().expect("a whole panel");
            gate_row::<F>(out, &gate[..PANEL], &up[..PANEL]);
        }
    }
}

#[inline(always)]
fn gate_row<F: Function>(out: &mut [f32], gate: &[f32], up: &[f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = F::of(*gate) * up;
    }
}

/// x = max(x, 0).
pub fn relu(pool: &Pool, x: &mut [f32]) {
    in_place::<Relu>(pool, x);
}

/// x = GELU(x) by its tanh approximation: x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))).
pub fn gelu_tanh(pool: &Pool, x: &mut [f32]) {
    in_place::<GeluTanh>(pool, x);
}

/// x = GELU(x) = x · Φ(x) = x/2 · (1 + erf(x/√2)).
///
/// erf by Abramowitz and Stegun 7.1.26 (absolute error 1.5·10⁻⁷).
pub fn gelu_erf(pool: &Pool, x: &mut [f32]) {
    in_place::<GeluErf>(pool, x);
}

/// x = cap · tanh(x / cap).
pub fn soft_cap(pool: &Pool, x: &mut [f32], cap: f32) {
    let columns = x.len().clamp(1, 1 << 12);
    let (whole, rest) = x.split_at_mut(x.len() - x.len() % columns);
    each_row_in_place(pool, whole, columns, |x| compute(pool.path(), Capped { x, cap }));
    compute(pool.path(), Capped { x: rest, cap });
}

struct Capped<'a> {
    x: &'a mut [f32],
    cap: f32,
}

impl Rows for Capped<'_> {
    #[inline(always)]
    fn compute(self) {
        crate::attention::soften(self.x, self.cap);
    }
}

/// A function of one value. `of` must be `#[inline(always)]`, as [`Rows::compute`].
trait Function {
    fn of(x: f32) -> f32;
}

struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x / (1.0 + exponential(-x))
    }
}

struct Relu;

impl Function for Relu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x.max(0.0)
    }
}

struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
        // (1 + tanh(z)) / 2 = 1 / (1 + e^(−2z)).
        x / (1.0 + exponential(-2.0 * inner))
    }
}

struct GeluErf;

impl Function for GeluErf {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
    }
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

struct Map<'a, F> {
    x: &'a mut [f32],
    function: PhantomData<F>,
}

impl<F: Function> Rows for Map<'_, F> {
    #[inline(always)]
    fn compute(self) {
        for x in self.x {
            *x = F::of(*x);
        }
    }
}

fn in_place<F: Function>(pool: &Pool, x: &mut [f32]) {
    let columns = x.len().clamp(1, 1 << 12);
    let (whole, rest) = x.split_at_mut(x.len() - x.len() % columns);
    let apply = |x: &mut [f32]| compute(pool.path(), Map::<F> { x, function: PhantomData });
    each_row_in_place(pool, whole, columns, apply);
    apply(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Path, affinity};

    #[test]
    fn silu_keeps_its_error_bound_over_the_whole_range_on_every_path() {
        let gate: Vec<f32> = (-86_900..100_000).step_by(7).map(|step| step as f32 * 1e-3).collect();
        let up: Vec<f32> = (0..gate.len()).map(|i| 1.5 - (i % 7) as f32).collect();
        for path in Path::supported() {
            let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core").with_path(path);
            let mut out = vec![0.0; gate.len()];
            silu_mul(&pool, &mut out, &gate, &up, gate.len(), gate.len());
            for ((gate, up), got) in gate.iter().zip(&up).zip(&out) {
                let (x, up) = (f64::from(*gate), f64::from(*up));
                let exact = x / (1.0 + (-x).exp()) * up;
                let error = (f64::from(*got) - exact).abs();
                assert!(error <= 4e-7 * exact.abs(), "{path}: silu({gate})·{up} is {exact}, not {got}");
            }
        }
    }
}
