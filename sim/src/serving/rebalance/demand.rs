//! Which requests come, as an engine sees it.

use crate::serving::picos::Picos;
use crate::serving::replica::Seen;

/// What is seen counts less and less, by half in so many seconds, or in so many requests where these take longer, but in
/// so many seconds at the latest: a few requests more or less would else be taken for another load.
const HALVED_IN: f64 = 10.0;
const HALVED_BY: f64 = 8.0;
const FORGOTTEN: f64 = 320.0;

/// Requests that come to each engine: how many, how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    at: Picos,
    seen: Seen,
    /// Weighted by how long ago: seconds and requests, prompts and their tokens, answers and their tokens.
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
    /// Nobody came yet; one request of so many tokens is expected.
    pub fn expected(prompt_tokens: f64, output_tokens: f64) -> Self {
        Self {
            at: Picos::ZERO,
            seen: Seen::default(),
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

    /// Until `at`, `engines` engines had seen so much, and so many requests wait.
    pub fn observe(&mut self, at: Picos, seen: Seen, waiting: u64, engines: u64) {
        let gap = (at - self.at).to_seconds().get();
        let more = |now: u64, before: u64| (now - before) as f64;
        let came = more(seen.requests, self.seen.requests);
        let kept = 0.5_f64.powf((gap / HALVED_IN).min((came / HALVED_BY).max(gap / FORGOTTEN)));
        let add = |sum: &mut f64, more: f64| *sum = *sum * kept + more;
        add(&mut self.seconds, gap);
        add(&mut self.requests, came);
        add(&mut self.prompts, came);
        add(&mut self.prompt_tokens, more(seen.prompt_tokens, self.seen.prompt_tokens));
        add(&mut self.answers, more(seen.answers, self.seen.answers));
        add(&mut self.output_tokens, more(seen.output_tokens, self.seen.output_tokens));
        (self.at, self.seen) = (at, seen);
        (self.waiting, self.engines) = (waiting as f64, engines as f64);
    }

    /// Whether enough was seen to go by.
    pub fn is_known(&self) -> bool {
        self.requests > 1.0
    }

    /// Requests per second for each engine: those that came, and those that wait, who are to be served beside them.
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
