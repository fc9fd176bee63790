//! Recurrences, routers that are not plain, and what comes before and behind attention.

use super::bench::ParityBench;
use crate::cpu::{self, DeltaNet, DeltaRows, DeltaState, KvSpan, StridedRows, StridedRowsMut};
use crate::cuda::calls::{self, DeltaVectors, RecurrentRows, RouterRule};
use crate::runtime::KernelError;
use half::bf16;

pub(super) fn check(bench: &mut ParityBench) -> Result<(), KernelError> {
    for columns in [64, 257, 6144] {
        rows(bench, 5, columns)?;
    }
    for (count, groups) in [(8, 4), (33, 1), (256, 8)] {
        router(bench, 3, count, groups)?;
    }
    for (key_heads, value_heads, key_dim, value_dim) in [(2, 6, 20, 12), (2, 4, 128, 128), (1, 2, 256, 64)] {
        let net = DeltaNet { key_heads, value_heads, tiled: false, key_dim, value_dim, taps: 4 };
        recurrence(bench, net, false)?;
        recurrence(bench, net, true)?;
    }
    Ok(())
}

fn rows(bench: &mut ParityBench, rows: usize, columns: usize) -> Result<(), KernelError> {
    let what = |kernel: &str| format!("{kernel} of {rows} × {columns}");
    let (x, gamma) = (bench.noise(rows * columns), bench.noise(columns));
    let (x_at, gamma_at) = (bench.narrow(&x)?, bench.wide(&gamma)?);
    bench.run(&calls::rms_norm_row(x_at.values(), rows, columns, gamma_at.values(), 1e-6))?;
    let mut wanted = x.clone();
    cpu::rms_norm_heads(&bench.pool, &mut wanted, rows, columns, 1, &gamma, 1e-6);
    bench.compare(what("rms_norm_row"), &x_at, &wanted, 1e-5)?;

    let x_at = bench.narrow(&x)?;
    bench.run(&calls::unit_heads(x_at.values(), [rows, columns], [1, columns], 1e-6))?;
    let mut wanted = x.clone();
    cpu::rms_norm_heads(&bench.pool, &mut wanted, rows, columns, 1, &vec![1.0; columns], 1e-6);
    bench.compare(what("unit_heads"), &x_at, &wanted, 1e-5)?;

    let positions: Vec<usize> = (0..rows).map(|row| row * 8191).collect();
    let (x_at, positions_at) = (bench.narrow(&x)?, bench.numbers(&positions)?);
    let growth = [0.1, 8192.0];
    bench.run(&calls::grow_queries((x_at.values(), columns), columns, positions_at.values(), growth))?;
    let factor = |row: usize| 1.0 + 0.1 * (((row * 8191 + 1) as f32) / 8192.0).floor().ln_1p();
    let wanted: Vec<f32> = x.iter().enumerate().map(|(i, x)| x * factor(i / columns)).collect();
    bench.compare(what("grow_queries"), &x_at, &wanted, 1e-6)?;

    let gate = bench.noise(rows * columns);
    let (x_at, gate_at) = (bench.narrow(&x)?, bench.narrow(&gate)?);
    bench.run(&calls::gate_rows(x_at.values(), (gate_at.values(), columns), [rows, columns]))?;
    let wanted: Vec<f32> = x.iter().zip(&gate).map(|(x, gate)| x / (1.0 + (-gate).exp())).collect();
    bench.compare(what("gate_rows"), &x_at, &wanted, 1e-6)?;

    let (out_at, out) = bench.room(rows * columns)?;
    let made_at = bench.narrow(&x)?;
    let input = (gate_at.values(), Some(gamma_at.values()));
    bench.run(&calls::add_shared(out, made_at.values(), input, [rows, columns], false))?;
    let weight = |row: usize| {
        let dot: f32 = gate[row * columns..][..columns].iter().zip(&gamma).map(|(x, g)| x * g).sum();
        1.0 / (1.0 + (-dot).exp())
    };
    let wanted: Vec<f32> = x.iter().enumerate().map(|(i, x)| x * weight(i / columns)).collect();
    bench.compare(what("add_shared"), &out_at, &wanted, 1e-4)
}

/// A sigmoid router whose corrections leave one expert of each group in question, so that the
/// choice does not depend on rounding.
fn router(bench: &mut ParityBench, tokens: usize, count: usize, groups: usize) -> Result<(), KernelError> {
    let outputs = bench.noise(tokens * count);
    let size = count / groups;
    let best = |i: usize| i % size == i / size % size;
    let correction: Vec<f32> =
        (0..count).map(|i| if best(i) { 10.0 * (i / size) as f32 } else { -4.0 }).collect();
    let (per_token, groups_per_token) = (groups.div_ceil(2), groups.div_ceil(2));
    let rule =
        RouterRule { per_token, groups, groups_per_token, sigmoid: true, normalised: true, factor: 2.5 };
    let (at, correction_at) = (bench.wide(&outputs)?, bench.wide(&correction)?);
    let given = Some(correction_at.values());
    bench.run(&calls::weigh_experts(at.values(), [tokens, count], given, rule))?;
    let weights = outputs.chunks(count).flat_map(|outputs| {
        let chosen = |i: usize| best(i) && i / size >= groups - groups_per_token;
        let score = |i: usize| if chosen(i) { 1.0 / (1.0 + (-outputs[i]).exp()) } else { 0.0 };
        let total: f32 = (0..count).map(score).sum();
        (0..count).map(|i| 2.5 * score(i) / total).collect::<Vec<_>>()
    });
    let wanted: Vec<f32> = weights.collect();
    bench.compare_wide(format!("weigh_experts of {tokens} × {count}"), &at, &wanted, 1e-6)
}

/// Two sequences, one of which has a token before.
fn recurrence(bench: &mut ParityBench, net: DeltaNet, is_mamba: bool) -> Result<(), KernelError> {
    let what = |kernel: &str| format!("{kernel}{} of {net:?}", if is_mamba { " of Mamba-2" } else { "" });
    let (rows, width, inner) = (20, net.width(), net.value_heads * net.value_dim);
    let spans = [KvSpan { sequence: 1, past: 0, new: 19 }, KvSpan { sequence: 0, past: 1, new: 1 }];
    let (mut projected, mut kept) = (bench.noise(rows * width), bench.noise(2 * net.kept()));
    let (weights, heads) = (bench.noise(net.channels() * net.taps), bench.noise(3 * net.value_heads));
    let gamma = bench.noise(if is_mamba { inner } else { net.value_dim });
    let (at, state_at) = (bench.narrow(&projected)?, bench.wide(&kept)?);
    let (weights_at, heads_at, gamma_at) = (bench.wide(&weights)?, bench.wide(&heads)?, bench.wide(&gamma)?);
    let (table, numbers) = (bench.numbers(&[1, 0])?, bench.numbers(&[0, 0, 19, 0, 1, 1, 1, 19])?);
    let operands = RecurrentRows {
        net,
        projected: (at.values(), width),
        rows,
        state: state_at.values(),
        table: table.values(),
        spans: numbers.values(),
    };
    bench.run(&calls::delta_convolve(operands, weights_at.values(), None))?;
    let mut states = DeltaState(&mut kept);
    let mut strided = StridedRowsMut::new(&mut projected, width);
    cpu::delta_convolve(&bench.pool, &net, [&weights, &[]], &mut strided, &mut states, &spans);
    bench.compare(what("convolve"), &at, &projected, 1e-5)?;

    let convolved = at.read_back::<u16>(0..projected.len())?;
    let convolved: Vec<f32> = convolved.into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect();
    let of_head = |which: usize| heads_at.values::<f32>().from(which * net.value_heads);
    let (log_rates, step_bias, skip) = (of_head(0), of_head(1), of_head(2));
    let vectors = DeltaVectors { log_rates, step_bias, gamma: gamma_at.values(), epsilon: 1e-3 };
    let (out_at, out) = bench.room(rows * inner)?;
    let calls = match is_mamba {
        true => calls::mamba2(operands, vectors, skip, out),
        false => calls::gated_delta(operands, vectors, out),
    };
    calls.iter().try_for_each(|call| bench.run(call))?;
    let mut of_heads = heads.chunks_exact(net.value_heads);
    let mut next = || of_heads.next().expect("three vectors");
    let (log_rates, step_bias, skip) = (next(), next(), next());
    let (projected, gamma) = (StridedRows::new(&convolved, width), &gamma[..]);
    let vectors = DeltaRows { projected, log_rates, step_bias, gamma, epsilon: 1e-3 };
    let mut wanted = vec![0.0; rows * inner];
    let target = StridedRowsMut::new(&mut wanted, inner);
    match is_mamba {
        true => cpu::mamba2(&bench.pool, &net, vectors, skip, &mut states, &spans, target),
        false => cpu::gated_delta(&bench.pool, &net, vectors, &mut states, &spans, target),
    }
    // The output is rounded in front of the norm too.
    bench.compare(what("recurrence"), &out_at, &wanted, 0.02)?;
    bench.compare_wide(what("states"), &state_at, &kept, 1e-4)
}
