//! Gated delta nets (Yang et al. 2024, arXiv:2412.06464): a short convolution over q, k and v, and
//! the gated delta rule, token by token.
//!
//! A head of values has a state S of `key_dim` × `value_dim`. With the decay α, the step β, the key
//! k and the query q of unit length, and the value v of a token:
//! S ← α·S; S ← S + k ⊗ β·(v − kᵀ·S); output (qᵀ·S) / √key_dim. The output's RMS norm is
//! multiplied by silu(z).

use crate::cpu::kv::KvSpan;
use crate::cpu::strided::{StridedRows, StridedRowsMut};
use crate::cpu::vector::{RowKernel, compute, each_range, sum};
use crate::runtime::{Disjoint, Pool};

/// Widths of a gated delta net. A row of its projection has q and k of each head of keys, v and z
/// of each head of values, and for each head of values the logit of β and the logit of α.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaNet {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; each head of keys serves equally many.
    pub value_heads: usize,
    /// Whether the values of one head of keys lie `key_heads` heads apart, instead of following one
    /// another.
    pub tiled: bool,
    /// Width of a key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// Taps of the convolution.
    pub taps: usize,
}

impl DeltaNet {
    /// Columns that the convolution reads and writes: q, k and v.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// The head of keys that serves a head of values.
    fn key_head(&self, value_head: usize) -> usize {
        match self.tiled {
            true => value_head % self.key_heads,
            false => value_head / (self.value_heads / self.key_heads),
        }
    }

    /// Values of a row of the projection.
    pub fn width(&self) -> usize {
        self.channels() + self.value_heads * (self.value_dim + 2)
    }

    /// Values of the matrices of one sequence, `[value head][key][value]`.
    pub fn matrices(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }

    /// Values of the last inputs of one sequence's convolution, `[tap][channel]`, the oldest first.
    pub fn inputs(&self) -> usize {
        (self.taps - 1) * self.channels()
    }

    /// Values that one sequence keeps: its matrices, then its inputs.
    pub fn kept(&self) -> usize {
        self.matrices() + self.inputs()
    }
}

/// The states of all sequences, `[sequence]`[kept values](DeltaNet::kept).
#[derive(Debug)]
pub struct DeltaState<'a>(pub &'a mut [f32]);

/// The vectors of a recurrent layer, and the rows of its projection.
#[derive(Debug, Clone, Copy)]
pub struct DeltaRows<'a> {
    /// Rows of the projection, with its first [channels](DeltaNet::channels) convolved.
    pub projected: StridedRows<'a>,
    /// By head of values: ln of its rate of decay.
    pub log_rates: &'a [f32],
    /// By head of values: the bias of its time step.
    pub step_bias: &'a [f32],
    /// The weight of the norm behind it: `value_dim` values for each head, or for all of them.
    pub gamma: &'a [f32],
    /// The norm's ε.
    pub epsilon: f32,
}

/// Convolves q, k and v of the new tokens, in place, with silu behind it: channel c of token t is
/// silu(bias c + Σᵢ `weights[c][i]` · input t − taps + 1 + i). `bias` is empty where there is none.
/// The last inputs are kept for the next tokens.
/// A sequence without past tokens starts with inputs of 0.
///
/// # Panics
/// Where the lengths do not agree.
pub fn delta_convolve(
    pool: &Pool,
    net: &DeltaNet,
    [weights, bias]: [&[f32]; 2],
    rows: &mut StridedRowsMut<'_>,
    state: &mut DeltaState<'_>,
    spans: &[KvSpan],
) {
    let (channels, taps) = (net.channels(), net.taps);
    let count: usize = spans.iter().map(|span| span.new).sum();
    rows.assert_holds(count, channels, "rows");
    assert_eq!(weights.len(), channels * taps, "weights of the convolution");
    assert!(bias.is_empty() || bias.len() == channels, "a bias of the convolution");
    let stride = rows.stride;
    let values = Disjoint::new(rows.values);
    let kept = Disjoint::new(state.0);
    let mut first = 0;
    for span in spans {
        let inputs = span.sequence * net.kept() + net.matrices();
        // SAFETY: one member has a range of channels of every row and of the kept inputs.
        let at = |token: usize, from: usize, len: usize| unsafe {
            values.range((first + token) * stride + from, len)
        };
        // SAFETY: as above.
        let past =
            |tap: usize, from: usize, len: usize| unsafe { kept.range(inputs + tap * channels + from, len) };
        each_range(pool, channels, span.new * taps, |range| {
            let (from, len) = (range.start, range.len());
            if span.past == 0 {
                (0..taps - 1).for_each(|tap| past(tap, from, len).fill(0.0));
            }
            // The inputs that the next tokens need, before any is overwritten. Those of this span
            // come after what is left of the earlier ones.
            let mut next = vec![0.0; (taps - 1) * len];
            for (tap, next) in next.chunks_exact_mut(len).enumerate() {
                next.copy_from_slice(match (tap + span.new).checked_sub(taps - 1) {
                    Some(token) => at(token, from, len),
                    None => past(tap + span.new, from, len),
                });
            }
            // From the last token to the first, each before its inputs are overwritten.
            let mut out = vec![0.0; len];
            for token in (0..span.new).rev() {
                match bias.get(range.clone()) {
                    Some(bias) => out.copy_from_slice(bias),
                    None => out.fill(0.0),
                }
                for tap in 0..taps {
                    let input = match (token + tap).checked_sub(taps - 1) {
                        Some(token) => &*at(token, from, len),
                        None => &*past(token + tap, from, len),
                    };
                    for (channel, (out, input)) in out.iter_mut().zip(input).enumerate() {
                        *out += weights[(from + channel) * taps + tap] * input;
                    }
                }
                let to = at(token, from, len);
                to.iter_mut().zip(&out).for_each(|(to, x)| *to = x / (1.0 + (-x).exp()));
            }
            for (tap, next) in next.chunks_exact(len).enumerate() {
                past(tap, from, len).copy_from_slice(next);
            }
        });
        first += span.new;
    }
}

/// The gated delta rule over the new tokens, the norm of each head and the gate behind it. `out`
/// has rows of `value_heads` values. A sequence without past tokens starts with a state of 0.
///
/// # Panics
/// Where the lengths do not agree.
pub fn gated_delta(
    pool: &Pool,
    net: &DeltaNet,
    rows: DeltaRows<'_>,
    state: &mut DeltaState<'_>,
    spans: &[KvSpan],
    out: StridedRowsMut<'_>,
) {
    let count: usize = spans.iter().map(|span| span.new).sum();
    rows.projected.assert_holds(count, net.width(), "the projection");
    out.assert_holds(count, net.value_heads * net.value_dim, "out");
    assert!(net.value_heads.is_multiple_of(net.key_heads), "{net:?}");
    let lengths = [rows.log_rates.len(), rows.step_bias.len(), rows.gamma.len()];
    assert_eq!(lengths, [net.value_heads, net.value_heads, net.value_dim], "the layer's vectors");
    let (stride, out) = (out.stride, Disjoint::new(out.values));
    let kept = Disjoint::new(state.0);
    let spans: Vec<(usize, KvSpan)> = KvSpan::with_rows(spans).collect();
    pool.each(spans.len() * net.value_heads, |_, item| {
        let (index, head) = (item / net.value_heads, item % net.value_heads);
        let (first, span) = spans[index];
        let size = net.key_dim * net.value_dim;
        // SAFETY: each sequence is in one span, and each of its heads is one item.
        let matrix = unsafe { kept.range(span.sequence * net.kept() + head * size, size) };
        if span.past == 0 {
            matrix.fill(0.0);
        }
        for row in first..first + span.new {
            // SAFETY: each row and head is one item's.
            let out = unsafe { out.range(row * stride + head * net.value_dim, net.value_dim) };
            compute(pool.path(), TokenKernel { net, rows: &rows, row, head, matrix: &mut *matrix, out });
        }
    });
}

/// One token of one head.
struct TokenKernel<'a> {
    net: &'a DeltaNet,
    rows: &'a DeltaRows<'a>,
    row: usize,
    head: usize,
    matrix: &'a mut [f32],
    out: &'a mut [f32],
}

impl RowKernel for TokenKernel<'_> {
    #[inline(always)]
    fn compute(self) {
        let Self { net, rows, row, head, matrix, out } = self;
        let all = &rows.projected.values[row * rows.projected.stride..][..net.width()];
        let keys = net.key_heads * net.key_dim;
        let shared = net.key_head(head) * net.key_dim;
        let (q, k) = (&all[shared..][..net.key_dim], &all[keys + shared..][..net.key_dim]);
        let value = |from: usize| &all[from + head * net.value_dim..][..net.value_dim];
        let (v, z) = (value(2 * keys), value(net.channels()));
        let logits = net.channels() + net.value_heads * net.value_dim;
        let beta = 1.0 / (1.0 + (-all[logits + head]).exp());
        let step = softplus(all[logits + net.value_heads + head] + rows.step_bias[head]);
        let decay = (-rows.log_rates[head].exp() * step).exp();
        let unit = |x: &[f32]| 1.0 / (sum(x, |x| x * x) + 1e-6).sqrt();
        let (q_unit, k_unit) = (unit(q) / (net.key_dim as f32).sqrt(), unit(k));
        // The decayed state's answer to the key, then the update and the answer to the query.
        out.fill(0.0);
        for (k, state) in k.iter().zip(matrix.chunks_exact_mut(net.value_dim)) {
            let k = k * k_unit;
            for (state, out) in state.iter_mut().zip(&mut *out) {
                *state *= decay;
                *out += k * *state;
            }
        }
        out.iter_mut().zip(v).for_each(|(out, v)| *out = beta * (v - *out));
        for (k, state) in k.iter().zip(matrix.chunks_exact_mut(net.value_dim)) {
            let k = k * k_unit;
            state.iter_mut().zip(&*out).for_each(|(state, delta)| *state += k * delta);
        }
        out.fill(0.0);
        for (q, state) in q.iter().zip(matrix.chunks_exact(net.value_dim)) {
            let q = q * q_unit;
            out.iter_mut().zip(state).for_each(|(out, state)| *out += q * state);
        }
        let inverse = 1.0 / (sum(out, |x| x * x) / net.value_dim as f32 + rows.epsilon).sqrt();
        for ((out, gamma), z) in out.iter_mut().zip(rows.gamma).zip(z) {
            *out *= inverse * gamma * (z / (1.0 + (-z).exp()));
        }
    }
}

/// ln(1 + eˣ).
#[inline(always)]
pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Path, affinity};

    const NET: DeltaNet =
        DeltaNet { key_heads: 2, value_heads: 4, tiled: false, key_dim: 5, value_dim: 7, taps: 4 };

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect()
    }

    /// The outputs of two sequences whose tokens enter in chunks of `chunk`, and what is kept.
    fn outputs(pool: &Pool, tokens: usize, chunk: usize) -> (Vec<f32>, Vec<f32>) {
        let (width, context) = (NET.width(), NET.value_heads * NET.value_dim);
        let all = numbers(2 * tokens * width, 3);
        let weights = numbers(NET.channels() * NET.taps, 5);
        let (rates, bias, gamma) = (numbers(4, 7), numbers(4, 11), numbers(7, 17));
        // What an earlier sequence left behind must not matter.
        let mut kept = vec![f32::NAN; 2 * NET.kept()];
        let mut outputs = vec![0.0; 2 * tokens * context];
        for past in (0..tokens).step_by(chunk) {
            let new = chunk.min(tokens - past);
            let spans = [0, 1].map(|sequence| KvSpan { sequence, past, new });
            let rows = |sequence: usize| &all[(sequence * tokens + past) * width..][..new * width];
            let mut projected = [rows(0), rows(1)].concat();
            let mut state = DeltaState(&mut kept);
            let mut strided = StridedRowsMut::new(&mut projected, width);
            delta_convolve(pool, &NET, [&weights[..], &[]], &mut strided, &mut state, &spans);
            let rows = DeltaRows {
                projected: StridedRows::new(&projected, width),
                log_rates: &rates,
                step_bias: &bias,
                gamma: &gamma,
                epsilon: 1e-6,
            };
            let mut out = vec![f32::NAN; 2 * new * context];
            gated_delta(pool, &NET, rows, &mut state, &spans, StridedRowsMut::new(&mut out, context));
            for (sequence, out) in out.chunks_exact(new * context).enumerate() {
                outputs[(sequence * tokens + past) * context..][..out.len()].copy_from_slice(out);
            }
        }
        (outputs, kept)
    }

    #[test]
    fn chunks_of_any_length_give_the_bits_of_one_whole() {
        for path in Path::supported() {
            let cores = affinity::available_cores();
            let pool = Pool::new(&[cores[0], cores[cores.len() - 1]]).expect("our cores").with_path(path);
            for tokens in [1, 2, 11] {
                let (whole, kept) = outputs(&pool, tokens, tokens);
                assert!(whole.iter().chain(&kept).all(|value| value.is_finite()), "{path}");
                for chunk in [1, 2, 3, 5] {
                    assert!(outputs(&pool, tokens, chunk) == (whole.clone(), kept.clone()), "{path} {chunk}");
                }
            }
        }
    }

    /// The first token's state is β · k ⊗ v, so its output is β · (q·k) · v / √key_dim before the
    /// norm, which takes its size away.
    #[test]
    fn the_first_token_of_a_sequence_gets_its_own_value() {
        let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core");
        for tiled in [false, true] {
            check_first_token(&pool, &DeltaNet { tiled, ..NET });
        }
    }

    fn check_first_token(pool: &Pool, net: &DeltaNet) {
        let (width, context) = (NET.width(), NET.value_heads * NET.value_dim);
        let projected = numbers(width, 3);
        let mut kept = vec![f32::NAN; NET.kept()];
        let (rates, bias, gamma) = (numbers(4, 7), numbers(4, 11), vec![1.0; 7]);
        let rows = DeltaRows {
            projected: StridedRows::new(&projected, width),
            log_rates: &rates,
            step_bias: &bias,
            gamma: &gamma,
            epsilon: 0.0,
        };
        let span = [KvSpan { sequence: 0, past: 0, new: 1 }];
        let mut out = vec![0.0; context];
        let target = StridedRowsMut::new(&mut out, context);
        gated_delta(pool, net, rows, &mut DeltaState(&mut kept), &span, target);
        let keys = NET.key_heads * NET.key_dim;
        for head in 0..NET.value_heads {
            let shared = if net.tiled { head % 2 } else { head / 2 } * NET.key_dim;
            let (q, k) = (&projected[shared..][..NET.key_dim], &projected[keys + shared..][..NET.key_dim]);
            let sign = q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>().signum();
            let v = &projected[2 * keys + head * NET.value_dim..][..NET.value_dim];
            let z = &projected[NET.channels() + head * NET.value_dim..][..NET.value_dim];
            let size = (v.iter().map(|v| v * v).sum::<f32>() / NET.value_dim as f32).sqrt();
            for ((out, v), z) in out[head * NET.value_dim..].iter().zip(v).zip(z) {
                let wanted = sign * v / size * z / (1.0 + (-z).exp());
                assert!((out - wanted).abs() < 1e-4, "{out}, not {wanted}");
            }
        }
    }
}
