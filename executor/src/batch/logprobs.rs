//! Log-probabilities of tokens, from logits.

/// The log-probability of a chosen token, and of the most probable ones beside it: natural
/// logarithms of the softmax of the logits, before temperature and cuts.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// That of the chosen token.
    pub chosen: f32,
    /// The most probable tokens with theirs, the most probable first, equal ones by number.
    pub top: Vec<(u32, f32)>,
}

impl TokenLogprobs {
    /// Those of `token` and of the `count` most probable ones; `logits` are by token.
    pub(crate) fn new(logits: &[f32], token: u32, count: usize) -> Self {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
        let logprob = |token: u32| (f64::from(logits[token as usize] - most) - sum.ln()) as f32;
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let before =
            |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then_with(|| a.cmp(b));
        if count < order.len() {
            order.select_nth_unstable_by(count, before);
            order.truncate(count);
        }
        order.sort_unstable_by(before);
        Self { chosen: logprob(token), top: order.into_iter().map(|token| (token, logprob(token))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_all_tokens_sum_to_one_and_the_first_are_the_largest() {
        let logits: Vec<f32> = (0..97).map(|i| ((i * 37) % 101) as f32 / 9.0 - 4.0).collect();
        let all = TokenLogprobs::new(&logits, 5, logits.len());
        let sum: f64 = all.top.iter().map(|&(_, logprob)| f64::from(logprob).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        assert!(all.top.windows(2).all(|two| two[0].1 >= two[1].1));
        assert_eq!(all.top.iter().find(|(token, _)| *token == 5), Some(&(5, all.chosen)));
        for count in [0, 1, 7] {
            assert_eq!(TokenLogprobs::new(&logits, 5, count).top, all.top[..count]);
        }
    }

    #[test]
    fn equal_logits_share_the_probability_and_come_by_number() {
        let equal = TokenLogprobs::new(&[2.0; 4], 3, 2);
        assert!((equal.chosen - 0.25f32.ln()).abs() < 1e-6);
        assert_eq!(equal.top.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 1]);
    }
}
