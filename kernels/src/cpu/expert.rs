//! The feed-forward networks of experts, over the tokens that are routed to each.

use crate::cpu::activation::GateFunction;
use crate::cpu::gemm::group::GemmGroup;
use crate::cpu::gemm::{self, grouped_with};
use crate::cpu::strided::{StridedRows, StridedRowsMut};
use crate::cpu::vector::{add_bias, each_chunk, each_row_in_place_indexed};
use crate::cpu::weights::WeightsView;
use crate::runtime::{Disjoint, Pool, Scratch};
use std::ops::Range;

/// One expert's matrices and its tokens.
#[derive(Debug, Clone)]
pub struct ExpertWeights<'a> {
    /// The gate matrix G, and below it the up matrix U; or U alone.
    pub gate_up: WeightsView<'a>,
    /// The down matrix D.
    pub down: WeightsView<'a>,
    /// How gate and up are joined.
    pub gate: GateFunction,
    /// The bias of gate and up, and that of down; empty where there are none.
    pub biases: [&'a [f32]; 2],
    /// Whether a token's weight multiplies its input instead of its output.
    pub weighs_input: bool,
    /// The expert's tokens, ascending, each with its weight.
    pub tokens: &'a [(usize, f32)],
}

/// The least number of rows in a batch, also where there are fewer tokens: one token goes to
/// several experts.
const MIN_BATCH: usize = 64;

/// Adds each expert's output to its tokens: out\[t\] += w · D·(silu(G·x\[t\]) ⊙ (U·x\[t\])) for
/// each (t, w) of each expert's tokens, or with another [`GateFunction`], and with biases behind
/// each product. An expert that weighs its input has w · x\[t\] for x\[t\], and 1 for w.
///
/// Rows of `x` and `out` are as wide as an activation. Experts are added one after the other, so
/// that splitting a call into several changes no bit of the result. Every weight is read once for
/// all tokens; an expert without tokens is not read.
///
/// # Panics
/// Where the shapes do not agree, where an expert's tokens do not ascend or are beyond the rows of
/// `x` or `out`, or where the scratch (see [`scratch_bytes`]) is too short.
pub fn experts(
    pool: &Pool,
    out: &mut [f32],
    x: &[f32],
    experts: &[ExpertWeights<'_>],
    scratch: &mut Scratch,
) {
    let experts: Vec<_> = experts.iter().filter(|expert| !expert.tokens.is_empty()).cloned().collect();
    let Some(first) = experts.first() else { return };
    let most = (x.len() / first.gate_up.columns()).max(MIN_BATCH);
    let mut rest = &experts[..];
    while !rest.is_empty() {
        let mut rows = 0;
        let fits = |expert: &&ExpertWeights<'_>| {
            rows += expert.tokens.len();
            rows <= most
        };
        let (batch, after) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        run_batch(pool, out, x, batch, scratch);
        rest = after;
    }
}

/// Computes a batch of experts with one product for each of the two matrices.
fn run_batch(pool: &Pool, out: &mut [f32], x: &[f32], experts: &[ExpertWeights<'_>], scratch: &mut Scratch) {
    let (hidden, inner) = (experts[0].gate_up.columns(), experts[0].down.columns());
    let rows = x.len().min(out.len()) / hidden;
    let front = experts[0].gate.rows_in_front() * inner;
    for expert in experts {
        assert!(expert.gate_up.rows() == front && expert.down.rows() == hidden, "the matrices of one expert");
        assert!(expert.tokens.is_sorted_by(|one, next| one.0 < next.0), "each token once, in order");
        assert!(expert.tokens.iter().all(|(token, _)| *token < rows), "a token beyond {rows} rows");
    }
    // Each token with the factor of its input.
    let factor = |expert: &ExpertWeights<'_>, weight| if expert.weighs_input { weight } else { 1.0 };
    let inputs = experts
        .iter()
        .flat_map(|expert| expert.tokens.iter().map(move |&(token, weight)| (token, factor(expert, weight))));
    let tokens: Vec<_> = inputs.collect();
    let m = tokens.len();
    let (input, rest) = scratch.floats().split_at_mut(m * hidden);
    let (up, rest) = rest.split_at_mut(m * front);
    let (gated, rest) = rest.split_at_mut(m * inner);
    let (result, rest) = rest.split_at_mut(m * hidden);
    each_row_in_place_indexed(pool, input, hidden, |i, row| {
        let (token, factor) = tokens[i];
        row.iter_mut().zip(&x[token * hidden..]).for_each(|(row, x)| *row = factor * x);
    });
    let (y, x) = (StridedRowsMut::new(up, front), StridedRows::new(input, hidden));
    grouped_with(pool, &groups(experts, |it| it.gate_up), y, x, rest);
    add_biases(pool, up, experts, 0, front);
    experts[0].gate.apply(pool, gated, up, inner);
    let (y, x) = (StridedRowsMut::new(result, hidden), StridedRows::new(gated, inner));
    grouped_with(pool, &groups(experts, |it| it.down), y, x, rest);
    add_biases(pool, result, experts, 1, hidden);
    let out = Disjoint::new(out);
    for (GemmGroup { rows, .. }, expert) in groups(experts, |it| it.down).into_iter().zip(experts) {
        let result = &result[rows.start * hidden..];
        each_chunk(pool, rows.len(), hidden, |i| {
            let (token, weight) = expert.tokens[i];
            let weight = if expert.weighs_input { 1.0 } else { weight };
            // SAFETY: an expert's tokens ascend and are inside `out`, so each row is one item's.
            let sum = unsafe { out.range(token * hidden, hidden) };
            sum.iter_mut().zip(&result[i * hidden..][..hidden]).for_each(|(sum, y)| *sum += weight * y);
        });
    }
}

/// Adds each expert's bias number `which` to its rows of `columns` values.
fn add_biases(pool: &Pool, y: &mut [f32], experts: &[ExpertWeights<'_>], which: usize, columns: usize) {
    let mut rest = y;
    for expert in experts {
        let (rows, after) = rest.split_at_mut(expert.tokens.len() * columns);
        rest = after;
        let bias = expert.biases[which];
        if !bias.is_empty() {
            assert_eq!(bias.len(), columns, "a bias of one expert");
            add_bias(pool, rows, bias);
        }
    }
}

/// One matrix of each expert with the expert's rows, which follow each other.
fn groups<'a>(
    experts: &[ExpertWeights<'a>],
    matrix: impl Fn(&ExpertWeights<'a>) -> WeightsView<'a>,
) -> Vec<GemmGroup<'a>> {
    let mut end = 0;
    let mut rows = |expert: &ExpertWeights<'_>| -> Range<usize> {
        end += expert.tokens.len();
        end - expert.tokens.len()..end
    };
    experts.iter().map(|expert| GemmGroup { rows: rows(expert), w: matrix(expert) }).collect()
}

/// Bytes of scratch that [`experts()`] needs for `m` tokens in all, activations of width `hidden`
/// and experts of `inner` neurons, on a pool of `members`.
pub fn scratch_bytes(members: usize, m: usize, hidden: usize, inner: usize) -> usize {
    let m = m.max(MIN_BATCH);
    let product = [hidden, inner].map(|k| gemm::scratch_bytes(members, m, k));
    size_of::<f32>() * m * (2 * hidden + 3 * inner) + product[0].max(product[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::weights::Weights;
    use crate::runtime::{MemoryArena, Path, affinity};
    use hwprofiles::{Bytes, DType};

    fn gated_by(limit: Option<f64>, gate: f64, up: f64) -> f64 {
        match limit {
            Some(limit) => {
                let low = gate.min(limit);
                low / (1.0 + (-1.702 * low).exp()) * (up.clamp(-limit, limit) + 1.0)
            }
            None => gate / (1.0 + (-gate).exp()) * up,
        }
    }

    #[test]
    fn an_expert_is_its_formula_for_any_tokens_and_leaves_the_others_alone() {
        let memory = MemoryArena::new("test", Bytes::new(1 << 30));
        let value = |seed: usize| ((seed * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
        for (hidden, inner, all) in [(32, 48, 9), (40, 20, 3), (64, 16, 40)] {
            let numbers =
                |count: usize, from: usize| -> Vec<f32> { (0..count).map(|i| value(i + from)).collect() };
            let (gate_up, down) = (numbers(2 * inner * hidden, 1), numbers(inner * hidden, 5));
            let x = numbers(all * hidden, 9);
            let pack = |rows, columns, values: &[f32]| {
                Weights::from_f32(&memory, DType::F32, rows, columns, values).expect("it fits")
            };
            let (packed_gate_up, packed_down) =
                (pack(2 * inner, hidden, &gate_up), pack(hidden, inner, &down));
            for path in Path::supported() {
                let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core").with_path(path);
                let mut scratch = Scratch::unaccounted(scratch_bytes(1, all, hidden, inner)).expect("memory");
                for step in [1, 2, all] {
                    let tokens: Vec<(usize, f32)> =
                        (0..all).step_by(step).map(|t| (t, value(t) + 1.5)).collect();
                    let mut out = numbers(all * hidden, 3);
                    let before = out.clone();
                    let limit = 0.7;
                    let gate = if step == 2 { GateFunction::Limited(limit) } else { GateFunction::Silu };
                    let biases: [&[f32]; 2] = match step {
                        2 => [&gate_up[..2 * inner], &down[..hidden]],
                        _ => [&[], &[]],
                    };
                    let expert = |tokens| ExpertWeights {
                        gate_up: packed_gate_up.view(),
                        down: packed_down.view(),
                        gate,
                        biases,
                        weighs_input: step == 1,
                        tokens,
                    };
                    experts(&pool, &mut out, &x, &[expert(&[]), expert(&tokens)], &mut scratch);
                    for (t, (out, before)) in out.chunks(hidden).zip(before.chunks(hidden)).enumerate() {
                        let Some((_, weight)) = tokens.iter().find(|(token, _)| *token == t) else {
                            assert_eq!(out, before);
                            continue;
                        };
                        let x = &x[t * hidden..][..hidden];
                        let (input, weight) = if step == 1 { (*weight, 1.0) } else { (1.0, *weight) };
                        let dot = |row: &[f32]| {
                            row.iter().zip(x).map(|(w, x)| f64::from(w * x * input)).sum::<f64>()
                        };
                        let bias = |which: usize, i: usize| f64::from(*biases[which].get(i).unwrap_or(&0.0));
                        let rows: Vec<f64> = gate_up
                            .chunks(hidden)
                            .map(dot)
                            .enumerate()
                            .map(|(i, y)| y + bias(0, i))
                            .collect();
                        let bounds = (step == 2).then_some(f64::from(limit));
                        let gated = |i: usize| gated_by(bounds, rows[i], rows[i + inner]);
                        for (column, (out, before)) in out.iter().zip(before).enumerate() {
                            let down = &down[column * inner..][..inner];
                            let made: f64 =
                                down.iter().enumerate().map(|(i, w)| f64::from(*w) * gated(i)).sum();
                            let wanted = f64::from(*before) + f64::from(weight) * (made + bias(1, column));
                            let error = (f64::from(*out) - wanted).abs();
                            assert!(error < 5e-4 * (1.0 + wanted.abs()), "{path}: {out}, not {wanted}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_expert_without_a_gate_is_its_formula() {
        let memory = MemoryArena::new("test", Bytes::new(1 << 20));
        let (hidden, inner) = (32, 48);
        let numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|i| ((i * 7919 + 13) % 101) as f32 - 50.0).collect()
        };
        let (up, down, x) = (numbers(inner * hidden), numbers(hidden * inner), numbers(hidden));
        let pack = |rows, columns, values: &[f32]| {
            Weights::from_f32(&memory, DType::F32, rows, columns, values).expect("it fits")
        };
        let (packed_up, packed_down) = (pack(inner, hidden, &up), pack(hidden, inner, &down));
        let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core");
        let mut scratch = Scratch::unaccounted(scratch_bytes(1, 1, hidden, inner)).expect("memory");
        let expert = ExpertWeights {
            gate_up: packed_up.view(),
            down: packed_down.view(),
            gate: GateFunction::SquaredRelu,
            biases: [&[]; 2],
            weighs_input: false,
            tokens: &[(0, 0.5)],
        };
        let mut out = vec![0.0; hidden];
        experts(&pool, &mut out, &x, &[expert], &mut scratch);
        let dot = |row: &[f32], x: &[f64]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let made: Vec<f64> = up.chunks(hidden).map(|row| dot(row, &x).max(0.0).powi(2)).collect();
        assert!(made.contains(&0.0) && made.iter().any(|&made| made > 0.0));
        for (out, row) in out.iter().zip(down.chunks(inner)) {
            let wanted = 0.5 * dot(row, &made);
            let size: f64 = row.iter().zip(&made).map(|(w, x)| (f64::from(*w) * x).abs()).sum();
            assert!((f64::from(*out) - wanted).abs() < 1e-5 * size, "{out}, not {wanted}");
        }
    }

    #[test]
    fn experts_together_are_the_bits_of_one_after_the_other() {
        let memory = MemoryArena::new("test", Bytes::new(1 << 30));
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
            // Experts with no token, every token and some; together more rows than one batch.
            let tokens: Vec<Vec<(usize, f32)>> = [0, 1, 2, 3, 1]
                .map(|step| (0..all).filter(|t| step > 0 && t % step == 0).map(|t| (t, value(t))).collect())
                .into();
            let each: Vec<_> = packed
                .iter()
                .zip(&tokens)
                .map(|([gate_up, down], tokens)| ExpertWeights {
                    gate_up: gate_up.view(),
                    down: down.view(),
                    gate: GateFunction::Silu,
                    biases: [&[]; 2],
                    weighs_input: false,
                    tokens,
                })
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

    #[test]
    #[should_panic(expected = "a token beyond 2 rows")]
    fn a_token_whose_offset_overflows_is_refused() {
        let memory = MemoryArena::new("test", Bytes::new(1 << 20));
        let pack = |rows, columns| {
            Weights::from_f32(&memory, DType::F32, rows, columns, &vec![1.0; rows * columns]).expect("fits")
        };
        let (gate_up, down) = (pack(8, 8), pack(8, 4));
        let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core");
        let mut scratch = Scratch::unaccounted(scratch_bytes(1, 2, 8, 4)).expect("memory");
        // 2⁶¹ rows of eight values wrap around to row 0, which token 0 has.
        let expert = ExpertWeights {
            gate_up: gate_up.view(),
            down: down.view(),
            gate: GateFunction::Silu,
            biases: [&[]; 2],
            weighs_input: false,
            tokens: &[(0, 1.0), (1 << 61, 1.0)],
        };
        experts(&pool, &mut [0.0; 16], &[1.0; 16], &[expert], &mut scratch);
    }
}
