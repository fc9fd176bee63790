//! Mixtures of experts, from the router's scores to the sum.

use super::Bench;
use crate::cuda::calls::{self, Matrices, Routing};
use crate::{Error, Expert, Memory, Scratch, Weights, expert};
use hwprofiles::DType;
use hwprofiles::units::Bytes;

/// Of each token.
const EACH: usize = 2;
const HIDDEN: usize = 272;
const INNER: usize = 72;

pub(super) fn check(bench: &mut Bench) -> Result<(), Error> {
    for dtype in [DType::Bf16, DType::Int8, DType::Int4] {
        // Each pair by itself, and in tiles.
        for (tokens, experts) in [(1, 8), (3, 40), (150, 8)] {
            mixture(bench, dtype, tokens, experts)?;
        }
    }
    Ok(())
}

fn mixture(bench: &mut Bench, dtype: DType, tokens: usize, experts: usize) -> Result<(), Error> {
    let host = Memory::new("host", Bytes::new(1 << 30));
    let mut pack = |rows: usize, columns: usize| {
        let each = (0..experts).map(|_| {
            let values: Vec<f32> = bench.noise(rows * columns);
            Weights::from_f32(&host, dtype, rows, columns, &values)
        });
        each.collect::<Result<Vec<_>, _>>()
    };
    let (front, back) = (pack(2 * INNER, HIDDEN)?, pack(HIDDEN, INNER)?);
    let (x, scores) = (bench.noise(tokens * HIDDEN), bench.noise(tokens * experts));
    let there = |bench: &Bench, weights: &[Weights]| {
        weights.iter().map(|weights| bench.there(weights.bytes())).collect::<Result<Vec<_>, _>>()
    };
    let (front_at, back_at) = (there(bench, &front)?, there(bench, &back)?);
    let matrices = |weights: &[Weights], at: &[crate::Buffer]| Matrices {
        first: 0,
        shape: weights[0].shape(),
        bytes: at.iter().map(crate::Buffer::values).collect(),
    };

    let (_room, room) = bench.room::<u8>(Routing::bytes(tokens, experts, EACH))?;
    let routing = Routing::new(room, tokens, experts, EACH);
    let (x_at, scores_at) = (bench.narrow(&x)?, bench.wide(&scores)?);
    let (_up, up) = bench.room(routing.pairs() * 2 * INNER)?;
    let (_gated, gated) = bench.room(routing.pairs() * INNER)?;
    let (_made, made) = bench.room(routing.pairs() * HIDDEN)?;
    let (out_at, out) = bench.room(tokens * HIDDEN)?;
    let mut calls = routing.choose(scores_at.values(), true);
    calls.extend(routing.multiply(up, x_at.values(), &matrices(&front, &front_at))?);
    calls.push(calls::silu_mul(gated, up, up.from(INNER), 2 * INNER, routing.pairs(), INNER));
    calls.extend(routing.multiply(made, gated, &matrices(&back, &back_at))?);
    calls.push(routing.sum(out, made, 0..experts, false));
    calls.iter().try_for_each(|call| bench.run(call))?;

    let chosen = tokens_of(&scores, experts);
    let each: Vec<_> = (front.iter().zip(&back).zip(&chosen))
        .map(|((front, back), tokens)| Expert { front: front.view(), back: back.view(), tokens })
        .collect();
    let mut wanted = vec![0.0; tokens * HIDDEN];
    let mut scratch = Scratch::unaccounted(expert::scratch_bytes(1, tokens, HIDDEN, INNER))?;
    expert::experts(&bench.pool, &mut wanted, &x, &each, &mut scratch);
    // Four roundings to bf16 on the way, of values that cancel.
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
