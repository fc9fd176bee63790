//! Activation functions, alone and gated.

use crate::cpu::exponential::exponential;
use crate::cpu::vector::{RowKernel, compute, each_range, each_row_in_place};
use crate::cpu::weights::PANEL;
use crate::runtime::Disjoint;
use crate::runtime::Pool;
use std::marker::PhantomData;

/// out = silu(gate) · up, with silu(x) = x / (1 + e⁻ˣ). The relative error is below 4·10⁻⁷ for
/// gates above −87; for smaller gates the result is at most 10⁻³⁸ of gate · up.
///
/// `out` is rows of `columns` values. `gate` and `up` have rows of `columns` values that lie
/// `stride` apart: `columns` for two arrays, 2·`columns` where one product computed both.
///
/// # Panics
/// Where the lengths do not agree.
pub fn silu_mul(pool: &Pool, out: &mut [f32], gate: &[f32], up: &[f32], stride: usize, columns: usize) {
    gated::<Scalar<Silu>>(pool, out, gate, up, stride, columns, Scalar(PhantomData));
}

/// out = gelu(gate) · up, with GELU by its tanh approximation (see [`gelu_tanh`]). Shapes are those
/// of [`silu_mul`].
///
/// # Panics
/// Where the lengths do not agree.
pub fn gelu_mul(pool: &Pool, out: &mut [f32], gate: &[f32], up: &[f32], stride: usize, columns: usize) {
    gated::<Scalar<GeluTanh>>(pool, out, gate, up, stride, columns, Scalar(PhantomData));
}

/// out = (up + 1) · gate · σ(1.702 · gate), where gates are at most `limit` and ups from −`limit`
/// to `limit` (gpt-oss). Shapes are those of [`silu_mul`].
///
/// # Panics
/// Where the lengths do not agree.
pub fn limited_mul(
    pool: &Pool,
    out: &mut [f32],
    gate: &[f32],
    up: &[f32],
    [stride, columns]: [usize; 2],
    limit: f32,
) {
    gated(pool, out, gate, up, stride, columns, Limited(limit));
}

/// How an expert's gate and up become the input of its down matrix.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum GateFunction {
    /// [`silu_mul`].
    #[default]
    Silu,
    /// [`gelu_mul`].
    GeluTanh,
    /// [`limited_mul`], with its limit.
    Limited(f32),
    /// There is no gate: the square of what is positive of up.
    SquaredRelu,
}

impl GateFunction {
    /// Rows of matrices in front of the function, for each row behind it.
    pub(crate) fn rows_in_front(self) -> usize {
        if self == Self::SquaredRelu { 1 } else { 2 }
    }

    /// Rows of `columns` gates, and after them as many ups; or of ups alone.
    pub(crate) fn apply(self, pool: &Pool, out: &mut [f32], gate_up: &[f32], columns: usize) {
        let (up, stride) = (&gate_up[columns.min(gate_up.len())..], 2 * columns);
        match self {
            Self::Silu => silu_mul(pool, out, gate_up, up, stride, columns),
            Self::GeluTanh => gelu_mul(pool, out, gate_up, up, stride, columns),
            Self::Limited(limit) => limited_mul(pool, out, gate_up, up, [stride, columns], limit),
            Self::SquaredRelu => {
                out.copy_from_slice(&gate_up[..out.len()]);
                relu(pool, out);
                out.iter_mut().for_each(|x| *x *= *x);
            }
        }
    }
}

fn gated<F: Gate>(
    pool: &Pool,
    out: &mut [f32],
    gate: &[f32],
    up: &[f32],
    stride: usize,
    columns: usize,
    function: F,
) {
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
        compute(pool.path(), GatedRows { out, gate, up, stride, columns, function });
    });
}

struct GatedRows<'a, F> {
    out: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
    stride: usize,
    columns: usize,
    function: F,
}

impl<F: Gate> RowKernel for GatedRows<'_, F> {
    #[inline(always)]
    fn compute(self) {
        let (gate, up) = (self.gate.chunks(self.stride), self.up.chunks(self.stride));
        let rows = self.out.chunks_exact_mut(self.columns).zip(gate).zip(up);
        if self.columns != PANEL {
            return rows.for_each(|((out, gate), up)| gate_row(self.function, out, gate, up));
        }
        // Gate and up alternate in panels of a product's rows. With a constant length the compiler
        // makes one or two vectors without a loop.
        for ((out, gate), up) in rows {
            let out: &mut [f32; PANEL] = out.try_into().expect("a whole panel");
            gate_row(self.function, out, &gate[..PANEL], &up[..PANEL]);
        }
    }
}

#[inline(always)]
fn gate_row<F: Gate>(function: F, out: &mut [f32], gate: &[f32], up: &[f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = function.apply(*gate, *up);
    }
}

/// A function of a gate and an up. `apply` must be `#[inline(always)]`.
trait Gate: Copy + Sync {
    fn apply(self, gate: f32, up: f32) -> f32;
}

/// A function of the gate alone, by which the up is multiplied.
struct Scalar<F>(PhantomData<fn() -> F>);

impl<F> Clone for Scalar<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Scalar<F> {}

impl<F: ScalarFunction> Gate for Scalar<F> {
    #[inline(always)]
    fn apply(self, gate: f32, up: f32) -> f32 {
        F::apply(gate) * up
    }
}

/// The gate of [`limited_mul`], with its limit.
#[derive(Clone, Copy)]
struct Limited(f32);

impl Gate for Limited {
    #[inline(always)]
    fn apply(self, gate: f32, up: f32) -> f32 {
        let (gate, up) = (gate.min(self.0), up.max(-self.0).min(self.0));
        (up + 1.0) * (gate / (1.0 + exponential(-1.702 * gate)))
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
/// erf is computed by Abramowitz and Stegun 7.1.26 (absolute error 1.5·10⁻⁷).
pub fn gelu_erf(pool: &Pool, x: &mut [f32]) {
    in_place::<GeluErf>(pool, x);
}

/// x = cap · tanh(x / cap).
pub fn soft_cap(pool: &Pool, x: &mut [f32], cap: f32) {
    let columns = x.len().clamp(1, 1 << 12);
    let (whole, rest) = x.split_at_mut(x.len() - x.len() % columns);
    each_row_in_place(pool, whole, columns, |x| compute(pool.path(), SoftCapRows { x, cap }));
    compute(pool.path(), SoftCapRows { x: rest, cap });
}

struct SoftCapRows<'a> {
    x: &'a mut [f32],
    cap: f32,
}

impl RowKernel for SoftCapRows<'_> {
    #[inline(always)]
    fn compute(self) {
        soft_cap_slice(self.x, self.cap);
    }
}

/// x = cap · tanh(x / cap), with tanh(z) = 1 − 2 / (e²ᶻ + 1).
#[inline(always)]
pub(crate) fn soft_cap_slice(values: &mut [f32], cap: f32) {
    let twice = 2.0 / cap;
    for value in values {
        *value = cap - 2.0 * cap / (exponential(*value * twice) + 1.0);
    }
}

/// A function of one value. `apply` must be `#[inline(always)]`, as [`RowKernel::compute`].
trait ScalarFunction {
    fn apply(x: f32) -> f32;
}

struct Silu;

impl ScalarFunction for Silu {
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        x / (1.0 + exponential(-x))
    }
}

struct Relu;

impl ScalarFunction for Relu {
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        x.max(0.0)
    }
}

struct GeluTanh;

impl ScalarFunction for GeluTanh {
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
        // (1 + tanh(z)) / 2 = 1 / (1 + e^(−2z)).
        x / (1.0 + exponential(-2.0 * inner))
    }
}

struct GeluErf;

impl ScalarFunction for GeluErf {
    #[inline(always)]
    fn apply(x: f32) -> f32 {
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

struct MapRows<'a, F> {
    x: &'a mut [f32],
    function: PhantomData<F>,
}

impl<F: ScalarFunction> RowKernel for MapRows<'_, F> {
    #[inline(always)]
    fn compute(self) {
        for x in self.x {
            *x = F::apply(*x);
        }
    }
}

fn in_place<F: ScalarFunction>(pool: &Pool, x: &mut [f32]) {
    let columns = x.len().clamp(1, 1 << 12);
    let (whole, rest) = x.split_at_mut(x.len() - x.len() % columns);
    let apply = |x: &mut [f32]| compute(pool.path(), MapRows::<F> { x, function: PhantomData });
    each_row_in_place(pool, whole, columns, apply);
    apply(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Path, affinity};

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
