//! The demand: which requests come to an engine.

use crate::clock::SimTime;
use crate::serving::engine::request::RequestTotals;

/// Observations lose half their weight in this many seconds, or in this many requests if these take
/// longer, but at the latest in `HALF_LIFE_LIMIT` seconds. Otherwise a few requests more or less
/// would count as another load.
const HALF_LIFE_SECONDS: f64 = 10.0;
const HALF_LIFE_REQUESTS: f64 = 8.0;
const HALF_LIFE_LIMIT: f64 = 320.0;

/// The requests that come to each engine: how many, and how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    at: SimTime,
    totals: RequestTotals,
    /// Sums weighted by age: seconds and requests, prompts and their tokens, answers and their
    /// tokens.
    seconds: f64,
    requests: f64,
    prompts: f64,
    prompt_tokens: f64,
    answers: f64,
    output_tokens: f64,
    /// Requests that wait.
    waiting: f64,
    engines: f64,
}

impl Demand {
    /// The demand before the first request: one request of these token counts is expected.
    pub fn expected(prompt_tokens: f64, output_tokens: f64) -> Self {
        Self {
            at: SimTime::ZERO,
            totals: RequestTotals::default(),
            seconds: 0.0,
            requests: 0.0,
            prompts: 1.0,
            prompt_tokens,
            answers: 1.0,
            output_tokens,
            waiting: 0.0,
            engines: 1.0,
        }
    }

    /// Notes the totals of `engines` engines at `at`, where `waiting` requests wait.
    pub fn observe(&mut self, at: SimTime, totals: RequestTotals, waiting: u64, engines: u64) {
        let gap = (at - self.at).to_seconds().get();
        let growth = |now: u64, before: u64| (now - before) as f64;
        let arrived = growth(totals.requests, self.totals.requests);
        let half_lives =
            (gap / HALF_LIFE_SECONDS).min((arrived / HALF_LIFE_REQUESTS).max(gap / HALF_LIFE_LIMIT));
        let kept = 0.5_f64.powf(half_lives);
        let add = |sum: &mut f64, growth: f64| *sum = *sum * kept + growth;
        add(&mut self.seconds, gap);
        add(&mut self.requests, arrived);
        add(&mut self.prompts, arrived);
        add(&mut self.prompt_tokens, growth(totals.prompt_tokens, self.totals.prompt_tokens));
        add(&mut self.answers, growth(totals.answers, self.totals.answers));
        add(&mut self.output_tokens, growth(totals.output_tokens, self.totals.output_tokens));
        (self.at, self.totals) = (at, totals);
        (self.waiting, self.engines) = (waiting as f64, engines as f64);
    }

    /// Whether enough requests came for a decision.
    pub fn is_known(&self) -> bool {
        self.requests > 1.0
    }

    /// Requests per second for each engine. Waiting requests count too, because they must be served
    /// as well.
    pub fn rate(&self) -> f64 {
        (self.requests + self.waiting) / self.seconds / self.engines
    }

    /// Mean tokens of a prompt.
    pub fn prompt(&self) -> f64 {
        self.prompt_tokens / self.prompts
    }

    /// Mean tokens of an answer.
    pub fn output(&self) -> f64 {
        self.output_tokens / self.answers
    }
}
