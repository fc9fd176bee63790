//! The steps of a run. Simulator and executor run them one after the other.

use scenarios::{Step, Workload};

/// The steps of one static batch: prefill in chunks of at most `chunk` tokens per sequence, then
/// one decode step for each output token after the first, which the last prefill step yields. With
/// a draft, a decode step yields several tokens on average, and there are fewer of them.
///
/// All counts are per sequence. A chunk of 0 counts as 1. Without prompt or output tokens there are
/// no steps.
pub fn steps(workload: &Workload, chunk: u64) -> Vec<Step> {
    let &Workload { batch, prompt_tokens, output_tokens, .. } = workload;
    if batch == 0 || prompt_tokens == 0 || output_tokens == 0 {
        return Vec::new();
    }
    let chunk = chunk.max(1);
    let prefill = (0..prompt_tokens.div_ceil(chunk)).map(|index| {
        let past_tokens = index * chunk;
        let new_tokens = chunk.min(prompt_tokens - past_tokens);
        Step { past_tokens, ..Step::prefill(batch, new_tokens) }
    });
    let (new_tokens, yields) = (workload.step_tokens(), workload.tokens_per_step());
    let decode = (0..workload.decode_steps()).map(|step| {
        let generated = (step as f64 * yields) as u64;
        Step::verify(batch, new_tokens, prompt_tokens + generated)
    });
    prefill.chain(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scenarios::Phase;

    proptest! {
        #[test]
        fn each_step_continues_where_the_last_ended_and_every_token_is_counted_once(
            batch in 1u64..9, prompt in 1u64..300, output in 1u64..50, chunk in 1u64..400,
        ) {
            let steps = steps(&Workload::new(batch, prompt, output), chunk);
            let mut past = 0;
            for step in &steps {
                prop_assert_eq!((step.batch, step.past_tokens), (batch, past));
                prop_assert!(step.new_tokens >= 1 && step.new_tokens <= chunk.max(1));
                past += step.new_tokens;
            }
            prop_assert_eq!(past, prompt + output - 1);
            let decodes = steps.iter().filter(|step| step.phase == Phase::Decode).count() as u64;
            prop_assert_eq!(decodes, output - 1);
            // Prefill comes first, and only its last chunk may be short.
            let prefills = steps.len() as u64 - decodes;
            prop_assert_eq!(prefills, prompt.div_ceil(chunk));
            prop_assert!(steps.is_sorted_by_key(|step| step.phase));
            prop_assert!(steps.iter().take(prefills as usize - 1).all(|step| step.new_tokens == chunk));
        }
    }

    #[test]
    fn nothing_asked_is_nothing_done() {
        let steps_of = |batch, prompt, output| steps(&Workload::new(batch, prompt, output), 5);
        assert_eq!([steps_of(0, 5, 5), steps_of(5, 0, 5), steps_of(5, 5, 0)], [vec![], vec![], vec![]]);
    }
}
