//! What becomes of the users of a closed loop who do not move in step.
//!
//! Users whose requests are all alike send them, and wait for each other, at the same times. Real
//! lengths differ, if only by a token, and then they do not. The time to the first token can differ
//! several times between the two, and nobody can know from the scenario which is meant.

use super::day::serve_day_on;
use super::placement::ServingPlacement;
use super::tables::DayTables;
use crate::error::Result;
use crate::pipeline::PreparedScenario;
use scenarios::{Length, Requests, Serving, ThinkTime};
use sim::serving::Summary;

/// The share by which lengths differ at most from those of the scenario.
const SPREAD: f64 = 0.01;

/// The same day with lengths that differ by up to 1 %, evenly, and by a token at least. `None`
/// where users are not in step anyway: in an open loop, alone, with thinking times that differ, or
/// with lengths that do.
///
/// ```
/// use fulcrum::{DayTables, PreparedScenario, out_of_step_day, serve_day};
/// let scenario = fulcrum::parse_scenario(
///     "{machine: h100-sxm, model: llama-3.2-1b, engine: sglang,
///       workload: {concurrency: 8, requests: 80, prompt_tokens: 2048, output_tokens: 64}}",
/// )?;
/// let prepared = PreparedScenario::new(&scenario)?;
/// let in_step = serve_day(&prepared, DayTables::default())?.summary;
/// let other = out_of_step_day(&prepared)?.expect("all requests are alike");
/// assert!(other.ttft_s.mean < in_step.ttft_s.mean, "nobody waits for all others");
/// # Ok::<(), fulcrum::Error>(())
/// ```
///
/// # Errors
/// As [`serve_day`](crate::serve_day).
pub fn out_of_step_day(scenario: &PreparedScenario) -> Result<Option<Summary>> {
    let Some(spread) = scenario.serving().and_then(with_unequal_lengths) else { return Ok(None) };
    let day = serve_day_on(scenario, &spread, ServingPlacement::new(scenario)?, DayTables::default())?;
    Ok(Some(day.summary))
}

/// The same requests with lengths that differ, where they are all alike.
fn with_unequal_lengths(serving: &Serving) -> Option<Serving> {
    let Requests::Closed { concurrency: 2.., think: ThinkTime::Fixed(_), prompt, output, .. } =
        &serving.requests
    else {
        return None;
    };
    let (&Length::Fixed(prompt_tokens), &Length::Fixed(output_tokens)) = (prompt, output) else {
        return None;
    };
    if serving.rebalance || output_tokens < 2 {
        return None;
    }
    let around = |tokens: u64| {
        let more = ((tokens as f64 * SPREAD) as u64).max(1);
        Length::Uniform { from: tokens.saturating_sub(more).max(1), to: tokens + more }
    };
    let mut spread = serving.clone();
    if let Requests::Closed { prompt, output, .. } = &mut spread.requests {
        (*prompt, *output) = (around(prompt_tokens), around(output_tokens));
    }
    Some(spread)
}
