//! The kernels of routers that are not plain, of weighed inputs, and of shared experts.

use super::values::{assert_near, narrow, noise, short};
use crate::host_gpu::{Host, Operand, each_order};
use kernels::cuda::calls::{self, ExpertRouting, RouterRule};

/// The weights of each token's experts, found by sorting.
fn weights(outputs: &[f32], correction: &[f32], rule: RouterRule) -> Vec<f32> {
    let count = outputs.len();
    let scores: Vec<f64> = outputs.iter().map(|&x| f64::from(x)).map(|x| 1.0 / (1.0 + (-x).exp())).collect();
    let exponentials: Vec<f64> = outputs.iter().map(|&x| f64::from(x).exp()).collect();
    let total: f64 = exponentials.iter().sum();
    let softmax = exponentials.iter().map(|x| x / total).collect();
    let scores = if rule.sigmoid { scores } else { softmax };
    let preferred: Vec<f64> = scores.iter().zip(correction).map(|(x, more)| x + f64::from(*more)).collect();
    let descending = |of: &[f64]| {
        let mut order: Vec<usize> = (0..of.len()).collect();
        order.sort_by(|&a, &b| of[b].total_cmp(&of[a]));
        order
    };
    let size = count / rule.groups;
    let best = |group: &[f64]| -> f64 {
        let order = descending(group);
        order.iter().take(if rule.sigmoid { 2 } else { 1 }).map(|&i| group[i]).sum()
    };
    let groups: Vec<f64> = preferred.chunks(size).map(best).collect();
    let kept = &descending(&groups)[..rule.groups_per_token];
    let allowed: Vec<f64> = preferred
        .iter()
        .enumerate()
        .map(|(i, &x)| if kept.contains(&(i / size)) { x } else { f64::NEG_INFINITY })
        .collect();
    let chosen = &descending(&allowed)[..rule.per_token];
    let total: f64 = chosen.iter().map(|&i| scores[i]).sum();
    let scale = f64::from(rule.factor) / if rule.normalised { total } else { 1.0 };
    (0..count).map(|i| if chosen.contains(&i) { (scores[i] * scale) as f32 } else { 0.0 }).collect()
}

fn check_weights(host: &mut Host, [tokens, count]: [usize; 2], rule: RouterRule, corrected: bool) {
    let outputs: Vec<f32> = noise(tokens * count, 5).iter().map(|x| 4.0 * x).collect();
    let correction = if corrected { noise(count, 6) } else { vec![0.0; count] };
    let (mut at, mut correction_at) = (Operand::new(&outputs), Operand::new(&correction));
    let given = corrected.then(|| correction_at.values());
    host.run(&calls::weigh_experts(at.values(), [tokens, count], given, rule));
    let wanted: Vec<f32> =
        outputs.chunks(count).flat_map(|outputs| weights(outputs, &correction, rule)).collect();
    for (i, (got, wanted)) in at.read().iter().zip(&wanted).enumerate() {
        let same = (got - wanted).abs() <= 1e-5 * wanted.abs() && (*got == 0.0) == (*wanted == 0.0);
        assert!(same, "{got} at {i}, not {wanted}: {tokens} × {count}, {rule:?}");
    }
}

#[test]
fn routers_choose_groups_then_experts_and_weigh_them() {
    each_order(|host| {
        for (tokens, count, groups, groups_per_token, per_token) in [
            (1, 1, 1, 1, 1),
            (3, 6, 3, 1, 2),
            (5, 8, 4, 2, 3),
            (2, 31, 1, 1, 5),
            (2, 33, 33, 33, 4),
            (4, 64, 8, 4, 8),
            (2, 256, 8, 4, 8),
            (1, 1024, 16, 3, 6),
        ] {
            for (sigmoid, normalised) in [(true, true), (true, false), (false, true), (false, false)] {
                for (factor, corrected) in [(1.0, true), (2.5, false)] {
                    let rule =
                        RouterRule { per_token, groups, groups_per_token, sigmoid, normalised, factor };
                    check_weights(host, [tokens, count], rule, corrected);
                }
            }
        }
    });
}

#[test]
fn weights_are_taken_as_shares_and_may_weigh_inputs() {
    each_order(|host| {
        // Pairs by themselves, and pairs in tiles.
        for (tokens, experts, per_token) in [(2, 6, 2), (40, 5, 2), (9, 33, 4)] {
            let mut weights = vec![0.0; tokens * experts];
            for (token, row) in weights.chunks_mut(experts).enumerate() {
                for i in 0..per_token {
                    row[(token * 7 + i * 3) % experts] = 0.25 + i as f32;
                }
            }
            let mut room = Operand::<u8>::unwritten(ExpertRouting::bytes(tokens, experts, per_token));
            let routing = ExpertRouting::new(room.values(), tokens, experts, per_token);
            let mut at = Operand::new(&weights);
            routing.choose_weighed(at.values()).iter().for_each(|call| host.run(call));
            let columns = 24;
            let made = short(routing.pairs() * columns, 7);
            let sum = |routing: ExpertRouting, made: &[f32], host: &mut Host| {
                let (mut made, mut out) =
                    (Operand::new(&narrow(made)), Operand::<u16>::unwritten(tokens * columns));
                host.run(&routing.sum(out.values(), made.values(), 0..experts, false));
                out.read()
            };
            // The heaviest expert of a token comes first.
            let share = |pair: usize| 0.25 + (per_token - 1 - pair % per_token) as f32;
            let weighed: Vec<f32> = made.iter().enumerate().map(|(i, x)| share(i / columns) * x).collect();
            let all: Vec<f32> = (0..tokens * columns)
                .map(|i| {
                    let pairs = i / columns * per_token..(i / columns + 1) * per_token;
                    pairs.map(|pair| weighed[pair * columns + i % columns]).sum()
                })
                .collect();
            assert_near(&sum(routing, &made, host), &all, 1e-6, "the sum of weighed results");
            let mut inputs = Operand::new(&narrow(&made));
            host.run(&routing.weigh(inputs.values(), columns));
            assert_near(&inputs.read(), &weighed, 1e-6, "weighed inputs");
            let even: Vec<f32> = (0..tokens * columns)
                .map(|i| {
                    let pairs = i / columns * per_token..(i / columns + 1) * per_token;
                    pairs.map(|pair| made[pair * columns + i % columns]).sum()
                })
                .collect();
            let summed = sum(routing.weighing_input(true), &made, host);
            assert_near(&summed, &even, 1e-6, "the sum of results");
        }
    });
}

#[test]
fn a_shared_expert_is_gated_by_its_input_and_added_to_what_is_there() {
    each_order(|host| {
        for (rows, columns) in [(0, 3), (1, 1), (3, 85), (2, 256), (2, 1030)] {
            let values = rows * columns;
            let (x, made, before) = (short(values, 8), short(values, 9), short(values, 10));
            let gate = noise(columns, 11);
            for (gated, adds) in [(false, false), (true, false), (false, true), (true, true)] {
                let (mut x_at, mut made_at) = (Operand::new(&narrow(&x)), Operand::new(&narrow(&made)));
                let mut out = if adds { Operand::new(&narrow(&before)) } else { Operand::unwritten(values) };
                let mut gate_at = Operand::new(&gate);
                let input = (x_at.values(), gated.then(|| gate_at.values()));
                let call = calls::add_shared(out.values(), made_at.values(), input, [rows, columns], adds);
                host.run(&call);
                let weight = |row: usize| {
                    let of_row = x[row * columns..][..columns].iter().zip(&gate);
                    let dot: f64 = of_row.map(|(x, gate)| f64::from(*x) * f64::from(*gate)).sum();
                    if gated { (1.0 / (1.0 + (-dot).exp())) as f32 } else { 1.0 }
                };
                let wanted: Vec<f32> = (0..values)
                    .map(|i| weight(i / columns) * made[i] + if adds { before[i] } else { 0.0 })
                    .collect();
                assert_near(&out.read(), &wanted, 1e-4, &format!("{rows} × {columns} {gated} {adds}"));
            }
        }
    });
}
