//! Generated requests: their arrivals and lengths are drawn at random.

use crate::clock::{SimTime, Tick};
use crate::serving::engine::request::Request;
use crate::serving::fleet::source::RequestSource;
use hwprofiles::Seconds;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma, LogNormal};
use rand_pcg::Pcg64;
use scenarios::{Arrivals, Length, ThinkTime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stream of generated requests.
#[derive(Debug, Clone)]
pub struct GeneratedRequests {
    arrivals: Option<Arrivals>,
    prompt: LengthDraw,
    output: LengthDraw,
    left: u64,
    next: u64,
    at: Seconds,
    think: ThinkTime,
    /// In a closed loop: the arrivals of users who wait for no answer.
    pending: BinaryHeap<Reverse<SimTime>>,
    random: Pcg64,
    /// For thinking times, so that lengths do not depend on the order of answers.
    think_random: Pcg64,
}

impl GeneratedRequests {
    /// An open loop: `requests` requests that arrive as `arrivals` says and depend on no answers.
    pub fn open(arrivals: Arrivals, requests: u64, prompt: Length, output: Length, seed: u64) -> Self {
        Self {
            arrivals: Some(arrivals),
            prompt: LengthDraw::new(prompt),
            output: LengthDraw::new(output),
            left: requests,
            next: 0,
            at: Seconds::ZERO,
            think: ThinkTime::NONE,
            pending: BinaryHeap::new(),
            random: Pcg64::seed_from_u64(seed),
            think_random: Pcg64::seed_from_u64(!seed),
        }
    }

    /// A closed loop: `requests` requests of `concurrency` users. Each user sends the next request
    /// when the last one is answered.
    pub fn closed(concurrency: u64, requests: u64, prompt: Length, output: Length, seed: u64) -> Self {
        Self {
            arrivals: None,
            prompt: LengthDraw::new(prompt),
            output: LengthDraw::new(output),
            left: requests,
            next: 0,
            at: Seconds::ZERO,
            think: ThinkTime::NONE,
            pending: (0..concurrency.min(requests)).map(|_| Reverse(SimTime::ZERO)).collect(),
            random: Pcg64::seed_from_u64(seed),
            think_random: Pcg64::seed_from_u64(!seed),
        }
    }

    /// The same users with thinking times: each user thinks before each request but the first. They
    /// begin one after the other within `ramp`.
    pub fn thinking(mut self, think: ThinkTime, ramp: Seconds) -> Self {
        let users = self.pending.len();
        let begin =
            |user| Reverse(SimTime::rounding_up(ramp * (user as f64 / users as f64), Tick::Picosecond));
        self.pending = (0..users).map(begin).collect();
        Self { think, ..self }
    }

    fn thinking_time(&mut self) -> Seconds {
        let random = &mut self.think_random;
        match self.think {
            ThinkTime::Fixed(time) => time,
            ThinkTime::Uniform { from, to } => from + (to - from) * random.random::<f64>(),
            ThinkTime::LogNormal { mean, cv } => Seconds::new(log_normal(mean.get(), cv).sample(random)),
        }
    }

    fn arrival(&mut self) -> Option<SimTime> {
        let Some(arrivals) = self.arrivals else { return self.pending.pop().map(|Reverse(at)| at) };
        let gap = match arrivals {
            Arrivals::Poisson { rate } => self.random.sample::<f64, _>(Exp1) / rate,
            Arrivals::Uniform { rate } => 1.0 / rate,
            Arrivals::Gamma { rate, cv } => {
                // Shape 1 / cv², so that the mean is 1 / rate.
                let shape = 1.0 / (cv * cv);
                let gamma =
                    Gamma::new(shape, 1.0 / (rate * shape)).expect("a scenario's rate and cv are above 0");
                gamma.sample(&mut self.random)
            }
            Arrivals::Bursts { rate, size } => match self.next % size {
                0 => self.random.sample::<f64, _>(Exp1) * size as f64 / rate,
                _ => 0.0,
            },
        };
        self.at += Seconds::new(gap);
        Some(SimTime::rounding_up(self.at, Tick::Picosecond))
    }
}

/// A length with the distribution that it is drawn from.
#[derive(Debug, Clone, Copy)]
enum LengthDraw {
    Fixed(u64),
    Uniform { from: u64, to: u64 },
    LogNormal(LogNormal<f64>),
}

impl LengthDraw {
    fn new(length: Length) -> Self {
        match length {
            Length::Fixed(tokens) => Self::Fixed(tokens),
            Length::Uniform { from, to } => Self::Uniform { from, to },
            Length::LogNormal { mean, cv } => Self::LogNormal(log_normal(mean, cv)),
        }
    }

    fn tokens(&self, random: &mut Pcg64) -> u64 {
        match self {
            Self::Fixed(tokens) => *tokens,
            Self::Uniform { from, to } => random.random_range(*from..=*to),
            Self::LogNormal(lengths) => (lengths.sample(random).round() as u64).max(1),
        }
    }
}

/// The distribution with this mean and a standard deviation of `cv` times the mean.
fn log_normal(mean: f64, cv: f64) -> LogNormal<f64> {
    let variance = (1.0 + cv * cv).ln();
    let spread = LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt());
    spread.expect("a scenario's mean and cv are above 0")
}

impl RequestSource for GeneratedRequests {
    fn next(&mut self) -> Option<Request> {
        if self.left == 0 {
            return None;
        }
        let arrival = self.arrival()?;
        let id = self.next;
        self.left -= 1;
        self.next += 1;
        let prompt_tokens = self.prompt.tokens(&mut self.random);
        let output_tokens = self.output.tokens(&mut self.random);
        Some(Request { id, arrival, prompt_tokens, output_tokens, prefix: Vec::new() })
    }

    fn done(&mut self, at: SimTime) {
        if self.arrivals.is_none() {
            let at = at + SimTime::rounding_up(self.thinking_time(), Tick::Picosecond);
            self.pending.push(Reverse(at));
        }
    }

    fn replace_if_sooner(&mut self, held: &mut Request) {
        if let Some(mut first) = self.pending.peek_mut()
            && first.0 < held.arrival
        {
            std::mem::swap(&mut first.0, &mut held.arrival);
        }
    }

    fn depends_on_answers(&self) -> bool {
        self.arrivals.is_none()
    }
}
