//! The feed-forward network of one expert, over the tokens that go to it.

use crate::activation::silu_mul;
use crate::disjoint::Disjoint;
use crate::gemm::gemm_with;
use crate::vector::{each_chunk, each_row_in_place_indexed};
use crate::{Pool, Scratch, WeightsView, gemm};

/// out\[t\] += w · D·(silu(G·x\[t\]) ⊙ (U·x\[t\])) for each (t, w) of `tokens`: rows of `x` and `out`, whose width is that
/// of an activation. `matrices` are G over U, the rows of one after those of the other, and D. Every weight is read
/// once for all tokens, and not at all where there are none.
///
/// # Panics
/// Where the shapes do not agree, the rows of `tokens` do not ascend, or the scratch (see [`scratch_bytes`]) is too
/// short.
pub fn expert(
    pool: &Pool,
    out: &mut [f32],
    x: &[f32],
    tokens: &[(usize, f32)],
    matrices: [WeightsView<'_>; 2],
    scratch: &mut Scratch,
) {
    let [front, back] = matrices;
    let (m, hidden, inner) = (tokens.len(), front.columns(), back.columns());
    assert!(front.rows() == 2 * inner && back.rows() == hidden, "the matrices of one expert");
    assert!(tokens.is_sorted_by(|one, next| one.0 < next.0), "each token once, in order");
    if m == 0 {
        return;
    }
    let (input, rest) = scratch.floats().split_at_mut(m * hidden);
    let (up, rest) = rest.split_at_mut(m * 2 * inner);
    let (gated, rest) = rest.split_at_mut(m * inner);
    let (made, rest) = rest.split_at_mut(m * hidden);
    each_row_in_place_indexed(pool, input, hidden, |i, row| {
        row.copy_from_slice(&x[tokens[i].0 * hidden..][..hidden]);
    });
    gemm_with(pool, m, up, 2 * inner, input, hidden, front, rest);
    silu_mul(pool, gated, up, &up[inner..], 2 * inner, inner);
    gemm_with(pool, m, made, hidden, gated, inner, back, rest);
    let out = Disjoint::new(out);
    each_chunk(pool, m, hidden, |i| {
        let (token, weight) = tokens[i];
        // SAFETY: the tokens ascend, so that each of these rows is one item's.
        let sum = unsafe { out.range(token * hidden, hidden) };
        sum.iter_mut().zip(&made[i * hidden..][..hidden]).for_each(|(sum, made)| *sum += weight * made);
    });
}

/// Bytes of scratch that [`expert`] needs for `m` tokens, an activation of width `hidden` and `inner` neurons on a pool
/// of `members`.
pub fn scratch_bytes(members: usize, m: usize, hidden: usize, inner: usize) -> usize {
    let product = [hidden, inner].map(|k| gemm::scratch_bytes(members, m, k));
    size_of::<f32>() * m * (2 * hidden + 3 * inner) + product[0].max(product[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Path, Weights, affinity};
    use hwprofiles::{Bytes, DType};

    #[test]
    fn an_expert_is_its_formula_for_any_tokens_and_leaves_the_others_alone() {
        let memory = Memory::new("test", Bytes::new(1 << 30));
        let value = |seed: usize| ((seed * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
        for (hidden, inner, all) in [(32, 48, 9), (40, 20, 3), (64, 16, 40)] {
            let numbers =
                |count: usize, from: usize| -> Vec<f32> { (0..count).map(|i| value(i + from)).collect() };
            let (front, back) = (numbers(2 * inner * hidden, 1), numbers(inner * hidden, 5));
            let x = numbers(all * hidden, 9);
            let pack = |rows, columns, values: &[f32]| {
                Weights::from_f32(&memory, DType::F32, rows, columns, values).expect("it fits")
            };
            let (packed_front, packed_back) = (pack(2 * inner, hidden, &front), pack(hidden, inner, &back));
            for path in Path::supported() {
                let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core").with_path(path);
                let mut scratch = Scratch::unaccounted(scratch_bytes(1, all, hidden, inner)).expect("memory");
                for step in [1, 2, all] {
                    let tokens: Vec<(usize, f32)> =
                        (0..all).step_by(step).map(|t| (t, value(t) + 1.5)).collect();
                    let mut out = numbers(all * hidden, 3);
                    let before = out.clone();
                    let views = [packed_front.view(), packed_back.view()];
                    expert(&pool, &mut out, &x, &tokens, views, &mut scratch);
                    for (t, (out, before)) in out.chunks(hidden).zip(before.chunks(hidden)).enumerate() {
                        let Some((_, weight)) = tokens.iter().find(|(token, _)| *token == t) else {
                            assert_eq!(out, before);
                            continue;
                        };
                        let x = &x[t * hidden..][..hidden];
                        let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(w * x)).sum::<f64>();
                        let rows: Vec<f64> = front.chunks(hidden).map(dot).collect();
                        let gated = |i: usize| rows[i] / (1.0 + (-rows[i]).exp()) * rows[i + inner];
                        for (column, (out, before)) in out.iter().zip(before).enumerate() {
                            let back = &back[column * inner..][..inner];
                            let made: f64 =
                                back.iter().enumerate().map(|(i, w)| f64::from(*w) * gated(i)).sum();
                            let wanted = f64::from(*before) + f64::from(*weight) * made;
                            let error = (f64::from(*out) - wanted).abs();
                            assert!(error < 1e-4 * (1.0 + wanted.abs()), "{path}: {out}, not {wanted}");
                        }
                    }
                }
            }
        }
    }
}
