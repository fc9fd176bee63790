//! Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), token by token.
//!
//! A head has a state S of `key_dim` × `value_dim`. With the time step Δ, the rate A, the vectors B
//! and C of the head's group, and the input x of a token: S ← exp(−A·Δ)·S + Δ·B ⊗ x, and the output
//! is y = Cᵀ·S + D·x. The RMS norm of y · silu(z) spans the heads of a group.

use crate::cpu::delta::{DeltaNet, DeltaRows, DeltaState, softplus};
use crate::cpu::kv::KvSpan;
use crate::cpu::strided::StridedRowsMut;
use crate::cpu::vector::{RowKernel, compute, sum};
use crate::runtime::{Disjoint, Pool};

/// Mamba-2 over the new tokens, the gate and the norm behind it. Of `net`, a head of keys is a
/// group, its width that of B and C, and a head of values is a head. A row has x of each head, B
/// and C of each group (these are convolved), z of each head, and Δ of each head before its bias.
/// `skip` is D by head, and the norm is as wide as all heads, as `out` is. A sequence without past
/// tokens starts with a state of 0.
///
/// # Panics
/// Where the lengths do not agree.
pub fn mamba2(
    pool: &Pool,
    net: &DeltaNet,
    rows: DeltaRows<'_>,
    skip: &[f32],
    state: &mut DeltaState<'_>,
    spans: &[KvSpan],
    out: StridedRowsMut<'_>,
) {
    let count: usize = spans.iter().map(|span| span.new).sum();
    let inner = net.value_heads * net.value_dim;
    rows.projected.assert_holds(count, net.channels() + inner + net.value_heads, "the projection");
    out.assert_holds(count, inner, "out");
    assert!(net.value_heads.is_multiple_of(net.key_heads), "{net:?}");
    let lengths = [rows.log_rates, rows.step_bias, skip, rows.gamma].map(<[f32]>::len);
    assert_eq!(lengths, [net.value_heads, net.value_heads, net.value_heads, inner], "the layer's vectors");
    let (stride, out) = (out.stride, Disjoint::new(out.values));
    let kept = Disjoint::new(state.0);
    let spans: Vec<(usize, KvSpan)> = KvSpan::with_rows(spans).collect();
    let (width, size) = (inner / net.key_heads, net.matrices() / net.key_heads);
    pool.each(spans.len() * net.key_heads, |_, item| {
        let (index, group) = (item / net.key_heads, item % net.key_heads);
        let (first, span) = spans[index];
        // SAFETY: each sequence is in one span, and each of its groups is one item.
        let states = unsafe { kept.range(span.sequence * net.kept() + group * size, size) };
        if span.past == 0 {
            states.fill(0.0);
        }
        for row in first..first + span.new {
            // SAFETY: each row and group is one item's.
            let out = unsafe { out.range(row * stride + group * width, width) };
            let states = &mut *states;
            compute(pool.path(), GroupKernel { net, rows: &rows, skip, row, group, states, out });
        }
    });
}

/// One token of the heads of one group.
struct GroupKernel<'a> {
    net: &'a DeltaNet,
    rows: &'a DeltaRows<'a>,
    skip: &'a [f32],
    row: usize,
    group: usize,
    states: &'a mut [f32],
    out: &'a mut [f32],
}

impl RowKernel for GroupKernel<'_> {
    #[inline(always)]
    fn compute(self) {
        let Self { net, rows, skip, row, group, states, out } = self;
        let all = &rows.projected.values[row * rows.projected.stride..];
        let inner = net.value_heads * net.value_dim;
        let shared = |from: usize| &all[from + group * net.key_dim..][..net.key_dim];
        let (b, c) = (shared(inner), shared(inner + net.key_heads * net.key_dim));
        let steps = net.channels() + inner;
        let first = group * (net.value_heads / net.key_heads);
        let states = states.chunks_exact_mut(net.key_dim * net.value_dim);
        for (index, (state, out)) in states.zip(out.chunks_exact_mut(net.value_dim)).enumerate() {
            let head = first + index;
            let value = |from: usize| &all[from + head * net.value_dim..][..net.value_dim];
            let (x, z) = (value(0), value(net.channels()));
            let step = softplus(all[steps + head] + rows.step_bias[head]);
            let decay = (-rows.log_rates[head].exp() * step).exp();
            out.iter_mut().zip(x).for_each(|(out, x)| *out = skip[head] * x);
            for ((b, c), state) in b.iter().zip(c).zip(state.chunks_exact_mut(net.value_dim)) {
                let b = b * step;
                for ((state, x), out) in state.iter_mut().zip(x).zip(&mut *out) {
                    *state = decay * *state + b * x;
                    *out += c * *state;
                }
            }
            out.iter_mut().zip(z).for_each(|(out, z)| *out *= z / (1.0 + (-z).exp()));
        }
        let inverse = 1.0 / (sum(out, |x| x * x) / out.len() as f32 + rows.epsilon).sqrt();
        let gamma = &rows.gamma[first * net.value_dim..];
        out.iter_mut().zip(gamma).for_each(|(out, gamma)| *out *= inverse * gamma);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::strided::StridedRows;
    use crate::runtime::{Path, affinity};

    const NET: DeltaNet =
        DeltaNet { key_heads: 2, value_heads: 4, tiled: false, key_dim: 5, value_dim: 6, taps: 4 };
    const INNER: usize = 24;
    const WIDTH: usize = INNER + 20 + INNER + 4;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect()
    }

    fn run(pool: &Pool, projected: &[f32], kept: &mut [f32], past: usize) -> Vec<f32> {
        let new = projected.len() / WIDTH;
        let [rates, bias, skip] = [7, 11, 19].map(|seed| numbers(4, seed));
        let gamma = numbers(INNER, 17);
        let rows = DeltaRows {
            projected: StridedRows::new(projected, WIDTH),
            log_rates: &rates,
            step_bias: &bias,
            gamma: &gamma,
            epsilon: 1e-6,
        };
        let mut out = vec![f32::NAN; new * INNER];
        let span = [KvSpan { sequence: 0, past, new }];
        let target = StridedRowsMut::new(&mut out, INNER);
        mamba2(pool, &NET, rows, &skip, &mut DeltaState(kept), &span, target);
        out
    }

    #[test]
    fn chunks_of_any_length_give_the_bits_of_one_whole() {
        let projected = numbers(11 * WIDTH, 3);
        for path in Path::supported() {
            let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core").with_path(path);
            // What an earlier sequence left behind must not matter.
            let whole = run(&pool, &projected, &mut vec![f32::NAN; NET.kept()], 0);
            assert!(whole.iter().all(|value| value.is_finite()), "{path}");
            for chunk in [1, 2, 3, 5] {
                let mut kept = vec![f32::NAN; NET.kept()];
                let parts = projected.chunks(chunk * WIDTH).enumerate();
                let parts = parts.flat_map(|(index, part)| run(&pool, part, &mut kept, index * chunk));
                assert_eq!(parts.collect::<Vec<_>>(), whole, "{path}, chunks of {chunk}");
            }
        }
    }

    /// The first token's output is (Δ·(B·C) + D)·x before the gate and the norm of its group.
    #[test]
    fn the_first_token_gets_its_own_input() {
        let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core");
        let projected = numbers(WIDTH, 3);
        let out = run(&pool, &projected, &mut vec![f32::NAN; NET.kept()], 0);
        let [bias, skip, gamma] = [(4, 11), (4, 19), (INNER, 17)].map(|(count, seed)| numbers(count, seed));
        for group in 0..2 {
            let own = |from: usize| &projected[from + group * 5..][..5];
            let product: f32 = own(INNER).iter().zip(own(INNER + 10)).map(|(b, c)| b * c).sum();
            let value = |at: usize| {
                let head = at / 6;
                let step = (projected[WIDTH - 4 + head] + bias[head]).exp().ln_1p();
                let z = projected[INNER + 20 + at];
                (step * product + skip[head]) * projected[at] * z / (1.0 + (-z).exp())
            };
            let values: Vec<f32> = (12 * group..12 * group + 12).map(value).collect();
            let size = (values.iter().map(|x| x * x).sum::<f32>() / 12.0 + 1e-6).sqrt();
            for (index, value) in values.iter().enumerate() {
                let at = 12 * group + index;
                let wanted = value / size * gamma[at];
                assert!((out[at] - wanted).abs() < 1e-4, "{}, not {wanted}", out[at]);
            }
        }
    }
}
