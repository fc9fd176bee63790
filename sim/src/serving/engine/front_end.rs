//! What stands between an engine and its clients: a tokeniser before it, a detokeniser behind it.
//!
//! Each is one server with a queue. The tokeniser takes requests one after another, or several of
//! those that wait: then they leave it together. The detokeniser
//! takes the tokens of a step at the step's end, and works them off while the next steps run.

use crate::clock::{SimTime, Tick};
use hwprofiles::{Seconds, Sourced};
use scenarios::{FrontEndStation, ServingDefaults};
use serde::{Deserialize, Serialize};

/// The times of an engine's front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrontEnd {
    /// Of the tokeniser.
    pub tokeniser: StationTimes,
    /// Of the detokeniser.
    pub detokeniser: StationTimes,
    /// Prompts that the tokeniser takes together; at least 1.
    pub batch: u64,
    /// How long it waits for others after the first prompt of a batch.
    pub batch_wait: SimTime,
    /// From a request's arrival until it may be scheduled, beside the tokeniser.
    pub per_request: SimTime,
    /// Tokens that reach the client together; at least 1.
    pub stream_interval: u64,
}

/// The times of one server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StationTimes {
    /// For each request.
    pub per_request: SimTime,
    /// For each token.
    pub per_token: SimTime,
}

impl Default for FrontEnd {
    /// One that takes no time.
    fn default() -> Self {
        let none = StationTimes::default();
        Self {
            tokeniser: none,
            detokeniser: none,
            batch: 1,
            batch_wait: SimTime::ZERO,
            per_request: SimTime::ZERO,
            stream_interval: 1,
        }
    }
}

impl FrontEnd {
    /// The front end of an engine.
    pub(crate) fn new(engine: &ServingDefaults) -> Self {
        let time = |time: &Sourced<Seconds>| SimTime::rounding_up(time.value, Tick::Picosecond);
        let station = |station: &FrontEndStation| StationTimes {
            per_request: station.per_request.as_ref().map_or(SimTime::ZERO, time),
            per_token: station.per_token.as_ref().map_or(SimTime::ZERO, time),
        };
        Self {
            tokeniser: station(&engine.tokeniser),
            detokeniser: station(&engine.detokeniser),
            batch: engine.tokeniser.batch.as_ref().map_or(1, |batch| batch.value),
            batch_wait: engine.tokeniser.batch_wait.as_ref().map_or(SimTime::ZERO, time),
            per_request: time(&engine.host_per_request),
            stream_interval: engine.stream_interval.value,
        }
    }

    /// Whether a request may be scheduled when it arrives.
    pub(crate) fn lets_in_at_once(&self) -> bool {
        self.tokeniser == StationTimes::default() && self.per_request == SimTime::ZERO
    }
}

impl StationTimes {
    /// The time of a request of `tokens` tokens.
    pub(crate) fn time(&self, tokens: u64) -> SimTime {
        self.per_request + self.per_token.times(tokens)
    }
}

/// The work that waits at the detokeniser.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Detokeniser {
    work: SimTime,
    at: SimTime,
}

impl Detokeniser {
    /// A series of `steps` steps from `begin` to `end`, after each of which `each` more work comes.
    /// The steps are taken as equally long.
    pub fn steps(&mut self, [begin, end]: [SimTime; 2], steps: u64, each: SimTime) {
        if each == SimTime::ZERO {
            return;
        }
        let left =
            |work: SimTime, time: SimTime| SimTime::from_picos(work.picos().saturating_sub(time.picos()));
        let (work, all, time) = (left(self.work, begin - self.at), each.times(steps), end - begin);
        // The most of three cases: never idle, idle until the first step ends, idle until the last
        // ends.
        let after_first = SimTime::from_picos(time.picos() - time.picos() / steps.max(1));
        self.work = left(work + all, time).max(left(all, after_first)).max(each);
        self.at = end;
    }

    /// How long the last token that came by `now` waits and is worked on.
    pub fn delay(&self, now: SimTime) -> SimTime {
        SimTime::from_picos(self.work.picos().saturating_sub((now - self.at).picos()))
    }
}
