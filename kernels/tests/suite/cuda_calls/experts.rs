//! The kernels of mixtures of experts.

use super::values::{FORMATS, assert_near, has_shape, narrow, noise, short, weights};
use crate::host_gpu::{Host, Operand, each_order};
use hwprofiles::DType;
use kernels::cuda::calls::{ExpertMatrices, ExpertRouting};

/// Tokens, experts, and experts of a token.
type Sizes = (usize, usize, usize);

/// Each token's experts with their shares, the best first, found by sorting.
fn routes(scores: &[f32], (_, experts, per_token): Sizes, normalised: bool) -> Vec<Vec<(usize, f32)>> {
    let route = |scores: &[f32]| {
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let own = &order[..per_token];
        let all = if normalised { own } else { &order[..] };
        let total: f32 = all.iter().map(|&expert| scores[expert].exp()).sum();
        own.iter().map(|&expert| (expert, scores[expert].exp() / total)).collect()
    };
    scores.chunks(experts).map(route).collect()
}

fn check_routes(host: &mut Host, sizes: Sizes, normalised: bool, scores: &[f32]) {
    let (tokens, experts, per_token) = sizes;
    let mut room = Operand::<u8>::unwritten(ExpertRouting::bytes(tokens, experts, per_token));
    let routing = ExpertRouting::new(room.values(), tokens, experts, per_token);
    let mut at = Operand::new(scores);
    routing.choose(at.values(), normalised).iter().for_each(|call| host.run(call));
    let words: Vec<i32> = room.read().chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
    let (ids, rest) = words.split_at(routing.pairs());
    let (shares, rest) = rest.split_at(routing.pairs());
    let wanted: Vec<(usize, f32)> = routes(scores, sizes, normalised).concat();
    for ((id, share), (expert, wanted)) in ids.iter().zip(shares).zip(&wanted) {
        let share = f32::from_bits(*share as u32);
        assert!(
            *id == *expert as i32 && (share - wanted).abs() < 1e-6,
            "{id} {share}, not {expert} {wanted}"
        );
    }
    if routing.pairs() <= experts {
        return;
    }
    // Every pair is in one tile, which belongs to its expert.
    let (order, tiles) = rest.split_at(rest.len() / 65 * 64);
    let mut seen = vec![false; routing.pairs()];
    for (tile, pairs) in tiles.iter().zip(order.chunks(64)) {
        for &pair in pairs.iter().filter(|pair| **pair >= 0) {
            assert!(ids[pair as usize] == *tile && !seen[pair as usize], "pair {pair} in a tile of {tile}");
            seen[pair as usize] = true;
        }
        assert!(*tile < 0 || pairs.iter().any(|&pair| pair >= 0), "a tile of nothing");
    }
    assert!(seen.iter().all(|&seen| seen), "{sizes:?}");
}

#[test]
fn tokens_go_to_the_experts_of_their_highest_scores_each_pair_into_one_tile() {
    each_order(|host| {
        for sizes in [(1, 1, 1), (3, 8, 2), (40, 5, 2), (9, 33, 33), (7, 160, 6), (300, 128, 8)] {
            for normalised in [true, false] {
                let scores = noise(sizes.0 * sizes.1, 5);
                check_routes(host, sizes, normalised, &scores.iter().map(|x| 4.0 * x).collect::<Vec<_>>());
            }
            // With equal scores all tokens go to the first experts.
            check_routes(host, sizes, true, &vec![0.5; sizes.0 * sizes.1]);
        }
    });
}

fn check_products(host: &mut Host, sizes: Sizes, dtype: DType, (rows, columns): (usize, usize)) {
    let (tokens, experts, per_token) = sizes;
    let what = format!("{dtype} {rows} × {columns}, {sizes:?}");
    let weights: Vec<_> =
        (0..experts).map(|expert| weights(dtype, rows, columns, 11 + expert as u64)).collect();
    let mut bytes: Vec<_> = weights.iter().map(|weights| Operand::new(weights.bytes())).collect();
    let mut room = Operand::<u8>::unwritten(ExpertRouting::bytes(tokens, experts, per_token));
    let routing = ExpertRouting::new(room.values(), tokens, experts, per_token);
    // The first expert is no token's best.
    let mut scores = noise(tokens * experts, 6);
    scores.iter_mut().step_by(experts).filter(|_| per_token < experts).for_each(|score| *score = -2.0);
    let (routes, mut scores) = (routes(&scores, sizes, true), Operand::new(&scores));
    routing.choose(scores.values(), true).iter().for_each(|call| host.run(call));
    let pairs: Vec<(usize, f32)> = routes.concat();

    // x has one row for each token, then one for each pair.
    for (x_rows, per_row) in [(tokens, per_token), (tokens * per_token, 1)] {
        let x = short(x_rows * columns, 12);
        let mut x_at = Operand::new(&narrow(&x));
        let mut y_at = Operand::<u16>::unwritten(pairs.len() * rows);
        // Two calls: the first has one expert alone, and the second leaves out the last expert.
        let parts = [(0, 1), (1, (experts - 1).max(1))];
        for &(first, end) in &parts[..if experts > 1 { 2 } else { 1 }] {
            let bytes = bytes[first..end].iter_mut().map(Operand::values).collect();
            let matrices = ExpertMatrices { first, shape: (dtype, rows, columns), bytes };
            let calls = routing.multiply(y_at.values(), x_at.values(), &matrices);
            calls.expect("the right bytes").iter().for_each(|call| host.run(call));
        }
        let rounds = dtype != DType::Bf16 && pairs.len() > experts;
        for (i, y) in y_at.read().chunks(rows).enumerate() {
            let (expert, _) = pairs[i];
            if expert + 1 == experts && experts > 1 {
                assert!(y.iter().all(|&bits| bits == u16::MAX), "{what}: others are left alone");
                continue;
            }
            let (view, x) = (weights[expert].view(), &x[i / per_row * columns..]);
            let dot =
                |row: usize| (0..columns).map(|k| f64::from(view.value(row, k)) * f64::from(x[k])).sum();
            let sums: Vec<f32> = (0..rows).map(|row| -> f64 { dot(row) }).map(|sum| sum as f32).collect();
            // Weights in tiles are bf16.
            let slack = if rounds { 1.0 / 256.0 } else { 1e-5 } * columns as f32;
            assert_near(y, &sums, slack + 1e-6, &what);
        }
    }

    let (made, before) = (short(pairs.len() * columns, 13), short(tokens * columns, 14));
    let mut made_at = Operand::new(&narrow(&made));
    for adds in [false, true] {
        let mut out =
            if adds { Operand::new(&narrow(&before)) } else { Operand::unwritten(tokens * columns) };
        host.run(&routing.sum(out.values(), made_at.values(), 1..experts, adds));
        let wanted: Vec<f32> = (0..tokens * columns)
            .map(|i| {
                let own = routes[i / columns].iter().enumerate().filter(|(_, (expert, _))| *expert >= 1);
                let made = own.map(|(k, (_, share))| {
                    share * made[(i / columns * per_token + k) * columns + i % columns]
                });
                made.sum::<f32>() + if adds { before[i] } else { 0.0 }
            })
            .collect();
        assert_near(&out.read(), &wanted, 1e-5, &what);
    }

    check_biases(host, &routing, &pairs, &mut made_at, (&made, columns));
}

/// Adds to each pair's row the bias of its expert.
fn check_biases(
    host: &mut Host,
    routing: &ExpertRouting,
    pairs: &[(usize, f32)],
    made_at: &mut Operand<u16>,
    (made, columns): (&[f32], usize),
) {
    let experts = 1 + pairs.iter().map(|(expert, _)| *expert).max().unwrap_or(0);
    let (stride, biases) = (columns + 3, noise(experts.max(140) * (columns + 3), 15));
    let mut biases_at = Operand::new(&biases);
    host.run(&routing.add_biases(made_at.values(), biases_at.values(), stride, columns));
    let bias = |i: usize| biases[pairs[i / columns].0 * stride + i % columns];
    let wanted: Vec<f32> = made.iter().enumerate().map(|(i, made)| made + bias(i)).collect();
    assert_near(&made_at.read(), &wanted, 1e-6, "biases");
}

#[test]
fn pairs_are_multiplied_by_their_experts_matrices_and_added_up_by_their_shares() {
    each_order(|host| {
        for dtype in FORMATS {
            // Few pairs, which read their matrices one by one.
            let few =
                [((1, 8, 2), (16, 8)), ((2, 5, 2), (48, 40)), ((1, 1, 1), (32, 64)), ((2, 5, 2), (48, 256))];
            // Pairs in tiles: partial tiles, a full one, and more than one; a partial last group of
            // columns, and rows that fill no tile.
            let many = [
                ((40, 5, 2), (48, 40)),
                ((3, 2, 2), (80, 64)),
                ((65, 2, 2), (64, 32)),
                ((40, 2, 1), (48, 192)),
                ((3, 2, 2), (80, 256)),
                ((65, 2, 1), (48, 512)),
            ];
            for (sizes, shape) in few.into_iter().chain(many).filter(|(_, shape)| has_shape(dtype, *shape)) {
                check_products(host, sizes, dtype, shape);
            }
        }
        // More experts than one call takes.
        check_products(host, (2, 140, 3), DType::Bf16, (16, 8));
        check_products(host, (70, 140, 3), DType::Int8, (16, 8));
    });
}
