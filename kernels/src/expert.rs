//! The feed-forward networks of experts, over the tokens that go to each.

use crate::activation::silu_mul;
use crate::disjoint::Disjoint;
use crate::gemm::grouped_with;
use crate::vector::{each_chunk, each_row_in_place_indexed};
use crate::{Group, Pool, Scratch, WeightsView, gemm};
use std::ops::Range;

/// One expert's matrices and tokens.
#[derive(Debug, Clone)]
pub struct Expert<'a> {
    /// G over U, the rows of one after those of the other.
    pub front: WeightsView<'a>,
    /// D.
    pub back: WeightsView<'a>,
    /// Its tokens, ascending, each with its weight.
    pub tokens: &'a [(usize, f32)],
}

/// Rows that are computed together even where there are fewer tokens: one token goes to several experts.
const TOGETHER: usize = 64;

/// out\[t\] += w · D·(silu(G·x\[t\]) ⊙ (U·x\[t\])) for each (t, w) of each expert's tokens: rows of `x` and `out`, whose width is
/// that of an activation; one expert after the other, so that a division of them changes no bit. Every weight is read once for
/// all tokens, and not at all where there are none.
///
/// # Panics
/// Where the shapes do not agree, an expert's tokens do not ascend, or the scratch (see [`scratch_bytes`]) is too short.
pub fn experts(pool: &Pool, out: &mut [f32], x: &[f32], experts: &[Expert<'_>], scratch: &mut Scratch) {
    let experts: Vec<_> = experts.iter().filter(|expert| !expert.tokens.is_empty()).cloned().collect();
    let Some(first) = experts.first() else { return };
    let most = (x.len() / first.front.columns()).max(TOGETHER);
    let mut rest = &experts[..];
    while !rest.is_empty() {
        let mut rows = 0;
        let fits = |expert: &&Expert<'_>| {
            rows += expert.tokens.len();
            rows <= most
        };
        let (these, after) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        together(pool, out, x, these, scratch);
        rest = after;
    }
}

fn together(pool: &Pool, out: &mut [f32], x: &[f32], experts: &[Expert<'_>], scratch: &mut Scratch) {
    let (hidden, inner) = (experts[0].front.columns(), experts[0].back.columns());
    let tokens: Vec<_> = experts.iter().flat_map(|expert| expert.tokens).copied().collect();
    let m = tokens.len();
    let (input, rest) = scratch.floats().split_at_mut(m * hidden);
    let (up, rest) = rest.split_at_mut(m * 2 * inner);
    let (gated, rest) = rest.split_at_mut(m * inner);
    let (made, rest) = rest.split_at_mut(m * hidden);
    each_row_in_place_indexed(pool, input, hidden, |i, row| {
        row.copy_from_slice(&x[tokens[i].0 * hidden..][..hidden]);
    });
    grouped_with(pool, &groups(experts, |it| it.front), up, 2 * inner, input, hidden, rest);
    silu_mul(pool, gated, up, &up[inner..], 2 * inner, inner);
    grouped_with(pool, &groups(experts, |it| it.back), made, hidden, gated, inner, rest);
    let out = Disjoint::new(out);
    for (Group { rows, .. }, expert) in groups(experts, |it| it.back).into_iter().zip(experts) {
        assert!(
            expert.front.rows() == 2 * inner && expert.back.rows() == hidden,
            "the matrices of one expert"
        );
        assert!(expert.tokens.is_sorted_by(|one, next| one.0 < next.0), "each token once, in order");
        let made = &made[rows.start * hidden..];
        each_chunk(pool, rows.len(), hidden, |i| {
            let (token, weight) = expert.tokens[i];
            // SAFETY: an expert's tokens ascend, so that each of these rows is one item's.
            let sum = unsafe { out.range(token * hidden, hidden) };
            sum.iter_mut().zip(&made[i * hidden..][..hidden]).for_each(|(sum, made)| *sum += weight * made);
        });
    }
}

/// Each expert's rows, one after the other, and one of its matrices.
fn groups<'a>(experts: &[Expert<'a>], matrix: impl Fn(&Expert<'a>) -> WeightsView<'a>) -> Vec<Group<'a>> {
    let mut end = 0;
    let mut rows = |expert: &Expert<'_>| -> Range<usize> {
        end += expert.tokens.len();
        end - expert.tokens.len()..end
    };
    experts.iter().map(|expert| Group { rows: rows(expert), w: matrix(expert) }).collect()
}

/// Bytes of scratch that [`experts`] needs where there are `m` tokens in all, an activation of width `hidden` and `inner` neurons
/// on a pool of `members`.
pub fn scratch_bytes(members: usize, m: usize, hidden: usize, inner: usize) -> usize {
    let m = m.max(TOGETHER);
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
                    let of = |tokens| Expert { front: packed_front.view(), back: packed_back.view(), tokens };
                    experts(&pool, &mut out, &x, &[of(&[]), of(&tokens)], &mut scratch);
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

    #[test]
    fn experts_together_are_the_bits_of_one_after_the_other() {
        let memory = Memory::new("test", Bytes::new(1 << 30));
        let value = |seed: usize| ((seed * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
        let numbers =
            |count: usize, from: usize| -> Vec<f32> { (0..count).map(|i| value(i + from)).collect() };
        let (hidden, inner, all) = (64, 32, 50);
        for dtype in [DType::F32, DType::Bf16, DType::Int8] {
            let pack = |rows, columns, from| {
                Weights::from_f32(&memory, dtype, rows, columns, &numbers(rows * columns, from))
                    .expect("it fits")
            };
            let packed: Vec<_> =
                (0..5).map(|i| [pack(2 * inner, hidden, i), pack(hidden, inner, 7 * i)]).collect();
            // Of no token, of every token, and of some; together more rows than are computed at once.
            let tokens: Vec<Vec<(usize, f32)>> = [0, 1, 2, 3, 1]
                .map(|step| (0..all).filter(|t| step > 0 && t % step == 0).map(|t| (t, value(t))).collect())
                .into();
            let each: Vec<_> = packed
                .iter()
                .zip(&tokens)
                .map(|([front, back], tokens)| Expert { front: front.view(), back: back.view(), tokens })
                .collect();
            let x = numbers(all * hidden, 9);
            for path in Path::supported() {
                let cores = affinity::available_cores();
                let pool = Pool::new(&[cores[0], cores[cores.len() - 1]]).expect("our cores").with_path(path);
                let mut scratch = Scratch::unaccounted(scratch_bytes(2, all, hidden, inner)).expect("memory");
                let [mut one_by_one, mut at_once] = [(); 2].map(|()| numbers(all * hidden, 3));
                for expert in &each {
                    experts(&pool, &mut one_by_one, &x, std::slice::from_ref(expert), &mut scratch);
                }
                experts(&pool, &mut at_once, &x, &each, &mut scratch);
                assert!(one_by_one == at_once, "{path} {dtype}");
            }
        }
    }
}
