//! Mixtures of experts, from the router's scores to the sum.

use super::bench::ParityBench;
use crate::cpu::{ExpertWeights, GateFunction, Weights, expert};
use crate::cuda::calls::{self, ExpertMatrices, ExpertRouting};
use crate::runtime::{Buffer, KernelError, Scratch};
use hwprofiles::DType;

/// Experts of each token.
const EACH: usize = 2;

pub(super) fn check(bench: &mut ParityBench) -> Result<(), KernelError> {
    for dtype in calls::GPU_MATRICES {
        // Few pairs, which read their matrices one by one, and many, which are in tiles, and in
        // tall ones.
        for (tokens, experts) in [(1, 8), (3, 40), (150, 8), (300, 2)] {
            mixture(bench, dtype, tokens, experts)?;
        }
    }
    Ok(())
}

fn mixture(bench: &mut ParityBench, dtype: DType, tokens: usize, experts: usize) -> Result<(), KernelError> {
    // Rows in blocks are whole ones.
    let (hidden, inner) = if Weights::has_blocks(dtype) { (256, 256) } else { (272, 72) };
    let mut pack = |rows: usize, columns: usize| {
        (0..experts).map(|_| bench.weights(dtype, rows, columns)).collect::<Result<Vec<_>, _>>()
    };
    let (gate_up, down) = (pack(2 * inner, hidden)?, pack(hidden, inner)?);
    let (x, scores) = (bench.noise(tokens * hidden), bench.noise(tokens * experts));
    let there = |bench: &ParityBench, weights: &[Weights]| {
        weights.iter().map(|weights| bench.there(weights.bytes())).collect::<Result<Vec<_>, _>>()
    };
    let (gate_up_at, down_at) = (there(bench, &gate_up)?, there(bench, &down)?);
    let matrices = |weights: &[Weights], at: &[Buffer]| ExpertMatrices {
        first: 0,
        shape: weights[0].shape(),
        bytes: at.iter().map(Buffer::values).collect(),
    };

    let (_room, room) = bench.room::<u8>(ExpertRouting::bytes(tokens, experts, EACH))?;
    let routing = ExpertRouting::new(room, tokens, experts, EACH);
    let (x_at, scores_at) = (bench.narrow(&x)?, bench.wide(&scores)?);
    let (_up, up) = bench.room(routing.pairs() * 2 * inner)?;
    let (_gated, gated) = bench.room(routing.pairs() * inner)?;
    let (_made, made) = bench.room(routing.pairs() * hidden)?;
    let (out_at, out) = bench.room(tokens * hidden)?;
    let mut calls = routing.choose(scores_at.values(), true);
    calls.extend(routing.multiply(up, x_at.values(), &matrices(&gate_up, &gate_up_at))?);
    calls.push(calls::silu_mul(gated, up, up.from(inner), 2 * inner, routing.pairs(), inner));
    calls.extend(routing.multiply(made, gated, &matrices(&down, &down_at))?);
    calls.push(routing.sum(out, made, 0..experts, false));
    calls.iter().try_for_each(|call| bench.run(call))?;

    let chosen = tokens_of(&scores, experts);
    let each: Vec<_> = (gate_up.iter().zip(&down).zip(&chosen))
        .map(|((gate_up, down), tokens)| {
            let (gate, biases) = (GateFunction::Silu, [&[][..]; 2]);
            ExpertWeights {
                gate_up: gate_up.view(),
                down: down.view(),
                gate,
                biases,
                weighs_input: false,
                tokens,
            }
        })
        .collect();
    let mut wanted = vec![0.0; tokens * hidden];
    let mut scratch = Scratch::unaccounted(expert::scratch_bytes(1, tokens, hidden, inner))?;
    expert::experts(&bench.pool, &mut wanted, &x, &each, &mut scratch);
    // The values are rounded to bf16 four times on the way, and they cancel.
    let largest = wanted.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let what = format!("{EACH} of {experts} experts in {dtype} for {tokens} tokens");
    bench.compare(what, &out_at, &wanted, largest / 64.0)
}

/// Tokens of each expert, with their shares.
fn tokens_of(scores: &[f32], experts: usize) -> Vec<Vec<(usize, f32)>> {
    let mut tokens = vec![Vec::new(); experts];
    for (token, scores) in scores.chunks(experts).enumerate() {
        let mut order: Vec<_> = (0..experts).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let total: f32 = order[..EACH].iter().map(|&expert| scores[expert].exp()).sum();
        order[..EACH].iter().for_each(|&expert| tokens[expert].push((token, scores[expert].exp() / total)));
    }
    tokens
}
