//! The range between users of a closed loop who move in step and users who do not.
//!
//! Users whose requests are all alike send them, and wait for each other, at the same times. Real
//! lengths differ, if only by a token, and then users spread out. The mean time to the first token
//! can differ several times between the two, and a scenario cannot say which of them is real.

use hwprofiles::Seconds;
use scenarios::{Length, Requests, Serving, ThinkTime};
use serde_json::{Value, json};
use sim::serving::{LatencyStats, Summary};

/// The share by which lengths differ at most from those of the scenario.
const SPREAD: f64 = 0.01;

/// A closed loop of equal requests, with users in step and with users who are not.
#[derive(Debug, Clone)]
pub struct LockstepRange {
    /// The day of the scenario, whose users move in step.
    pub in_step: Summary,
    /// The same day with lengths that differ by up to 1 %, evenly, and by a token at least.
    pub spread: Summary,
}

impl LockstepRange {
    /// Why there is a range.
    pub const REASON: &'static str = "all requests are alike, so users may move in step, as here, or spread out, \
                                      as lengths that differ by 1 % make them";

    /// The mean time to the first token, at least and at most.
    pub fn ttft(&self) -> [Seconds; 2] {
        self.means(|day| &day.ttft_s)
    }

    /// The mean time per output token, at least and at most.
    pub fn tpot(&self) -> [Seconds; 2] {
        self.means(|day| &day.tpot_s)
    }

    fn means(&self, times: fn(&Summary) -> &LatencyStats) -> [Seconds; 2] {
        let [one, other] = [&self.in_step, &self.spread].map(|day| times(day).mean);
        [one.min(other), one.max(other)].map(Seconds::new)
    }

    /// The range as JSON: means in seconds, and the times of either end.
    pub(crate) fn to_json(&self) -> Value {
        let range = |[least, most]: [Seconds; 2]| json!({ "least": least.get(), "most": most.get() });
        let end = |day: &Summary| json!({ "ttft_s": day.ttft_s, "tpot_s": day.tpot_s });
        json!({
            "reason": Self::REASON, "mean_ttft_s": range(self.ttft()), "mean_tpot_s": range(self.tpot()),
            "in_step": end(&self.in_step), "spread": end(&self.spread),
        })
    }
}

/// The same requests with lengths that differ. `None` where users are not in step: in an open loop,
/// alone, with thinking times that differ, or with lengths that do.
pub(crate) fn with_unequal_lengths(serving: &Serving) -> Option<Serving> {
    let mut unequal = serving.clone();
    let Requests::Closed { concurrency: 2.., think: ThinkTime::Fixed(_), prompt, output, .. } =
        &mut unequal.requests
    else {
        return None;
    };
    let (&mut Length::Fixed(prompt_tokens), &mut Length::Fixed(output_tokens)) = (&mut *prompt, &mut *output)
    else {
        return None;
    };
    if serving.rebalance || output_tokens < 2 {
        return None;
    }
    let around = |tokens: u64| {
        let by = ((tokens as f64 * SPREAD) as u64).max(1);
        Length::Uniform { from: tokens.saturating_sub(by).max(1), to: tokens + by }
    };
    (*prompt, *output) = (around(prompt_tokens), around(output_tokens));
    Some(unequal)
}
