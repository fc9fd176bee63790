//! Times of a prefill and of decode steps, as they stand in tables.

use hwprofiles::Seconds;
use planner::PhaseTimes;
use sim::SimTime;

/// The time to the first token.
pub fn ttft(times: &PhaseTimes) -> String {
    within_the_clock(times.ttft)
}

/// The time per output token, or `-` where there is one token alone.
pub fn tpot(times: &PhaseTimes) -> String {
    times.tpot.map_or("-".to_owned(), within_the_clock)
}

/// A time; one at which simulated time has ended is only known to be longer.
fn within_the_clock(time: Seconds) -> String {
    match time < SimTime::MAX.to_seconds() {
        true => time.to_string(),
        false => format!("> {} days", SimTime::MAX_DAYS),
    }
}
