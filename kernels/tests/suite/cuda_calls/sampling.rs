//! The kernel that samples tokens from logits.

use super::values::noise;
use crate::host_gpu::{Operand, each_order};
use kernels::cuda::calls;
use kernels::{SamplingParams, sample};

#[test]
fn the_largest_is_the_first_of_equals_and_no_token_is_chosen_where_a_logit_is_not_finite() {
    let rows: Vec<Vec<f32>> = vec![
        vec![1.0, 3.0, 3.0],
        vec![f32::NAN, -2.0, -1.0],
        vec![f32::NAN; 3],
        vec![f32::NEG_INFINITY; 3],
        vec![-0.0, 0.0, -1.0],
        vec![1.0, f32::INFINITY, 2.0],
    ];
    each_order(|host| {
        let (mut logits, mut greedy) =
            (Operand::new(&rows.concat()), Operand::new(&vec![SamplingParams::GREEDY; rows.len()]));
        let mut tokens = Operand::<i32>::unwritten(rows.len());
        host.run(&calls::sample(tokens.values(), logits.values(), greedy.values()));
        let wanted = rows.iter().map(|row| match row.iter().all(|logit| logit.is_finite()) {
            true => kernels::argmax(row).expect("a number") as i32,
            false => -1,
        });
        assert_eq!(tokens.read(), wanted.collect::<Vec<_>>());
        // One wrong logit is found wherever it is, also where the token would be drawn.
        let drawn = SamplingParams { uniform: 0.5, temperature: 1.0, ..SamplingParams::GREEDY };
        let mut drawn = Operand::new(&[drawn]);
        for vocabulary in [1023, 40_000] {
            for place in [0, vocabulary / 3, vocabulary - 1] {
                for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut row = noise(vocabulary, 37);
                    row[place] = wrong;
                    let (mut logits, mut token) = (Operand::new(&row), Operand::<i32>::unwritten(1));
                    host.run(&calls::sample(token.values(), logits.values(), drawn.values()));
                    assert_eq!(token.read(), [-1], "{wrong} at {place} of {vocabulary}");
                }
            }
        }
        for vocabulary in [1, 31, 1023, 1024, 1025, 5000] {
            let row = noise(2 * vocabulary, 31);
            let (mut logits, mut tokens) = (Operand::new(&row), Operand::<i32>::unwritten(2));
            host.run(&calls::sample(tokens.values(), logits.values(), greedy.values()));
            let wanted: Vec<_> =
                row.chunks(vocabulary).map(|row| kernels::argmax(row).map(|i| i as i32)).collect();
            assert_eq!(tokens.read().into_iter().map(Some).collect::<Vec<_>>(), wanted);
        }
    });
}

/// Whether `token` is right by the definition of temperature, top_k and top_p. Where the random
/// number falls on the border of two tokens, both are right.
fn is_drawn(row: &[f32], choice: SamplingParams, token: usize) -> bool {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
    order.truncate(if choice.top_k > 0 { choice.top_k as usize } else { row.len() });
    let weight = |token: usize| (f64::from(row[token] - row[order[0]]) / f64::from(choice.temperature)).exp();
    let total: f64 = order.iter().map(|&token| weight(token)).sum();
    let (close, cut) = (1e-6 * total, choice.top_p < 1.0);
    let mut before = 0.0;
    // The least and the greatest sum that top_p may leave.
    let (mut least, mut most) = (f64::MAX, total);
    for &token in &order {
        before += weight(token);
        let wanted = f64::from(choice.top_p) * total;
        if cut && before >= wanted - close {
            least = least.min(before);
        }
        if cut && before >= wanted + close {
            most = before;
            break;
        }
    }
    let uniform = f64::from(choice.uniform);
    let (least, most) = (uniform * least.min(most) - close, uniform * most + close);
    let mut before = 0.0;
    order.iter().any(|&candidate| {
        let from = before;
        before += weight(candidate);
        candidate == token && from <= most && before >= least
    })
}

#[test]
fn tokens_are_drawn_by_their_probability_and_the_same_on_both() {
    each_order(|host| {
        for vocabulary in [1, 2, 255, 1024, 3001] {
            for (temperature, top_k, top_p) in
                [(1.0, 0, 1.0), (0.3, 1, 1.0), (1.7, 40, 1.0), (0.8, 0, 0.9), (1.0, 50, 0.5), (1.0, 0, 1e-6)]
            {
                let uniforms = [0.0, 0.25, 0.5, 0.999_999_94];
                // Each row has parameters of its own: in one vocabulary one of the four is greedy
                // while the others draw.
                let choices = uniforms.map(|uniform| match uniform {
                    0.5 if vocabulary == 255 => SamplingParams::GREEDY,
                    _ => SamplingParams { uniform, temperature, top_p, top_k },
                });
                let mut logits: Vec<f32> = noise(4 * vocabulary, 41).iter().map(|x| 6.0 * x).collect();
                // So many equal logits that all digits of the token decide.
                logits[3 * vocabulary..].iter_mut().for_each(|x| *x = x.round());
                let mut tokens = Operand::<i32>::unwritten(4);
                let (mut at, mut numbers) = (Operand::new(&logits), Operand::new(&choices));
                host.run(&calls::sample(tokens.values(), at.values(), numbers.values()));
                let mut keys = Vec::new();
                for ((row, choice), token) in logits.chunks(vocabulary).zip(choices).zip(tokens.read()) {
                    assert_eq!(token as usize, sample(row, choice, &mut keys), "{choice:?} of {vocabulary}");
                    if choice.temperature > 0.0 {
                        assert!(
                            is_drawn(row, choice, token as usize),
                            "{token} of {vocabulary} for {choice:?}"
                        );
                    }
                }
            }
        }
    });
}
