//! Requests that nobody recorded: when they come, and how long they are.

use super::picos::Picos;
use super::request::Request;
use super::source::Source;
use hwprofiles::Seconds;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma, LogNormal};
use rand_pcg::Pcg64;
use scenarios::{Arrivals, Length, ThinkTime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests as a stream.
#[derive(Debug, Clone)]
pub struct Generated {
    arrivals: Option<Arrivals>,
    prompt: Length,
    output: Length,
    left: u64,
    next: u64,
    at: Seconds,
    think: ThinkTime,
    /// Of a closed loop: when the users come who wait for no answer.
    pending: BinaryHeap<Reverse<Picos>>,
    random: Pcg64,
    /// Of what users think: how long requests are does not depend on who is answered first.
    thoughts: Pcg64,
}

impl Generated {
    /// `requests` that come whenever `arrivals` says, whatever becomes of the others.
    pub fn open(arrivals: Arrivals, requests: u64, prompt: Length, output: Length, seed: u64) -> Self {
        Self {
            arrivals: Some(arrivals),
            prompt,
            output,
            left: requests,
            next: 0,
            at: Seconds::ZERO,
            think: ThinkTime::NONE,
            pending: BinaryHeap::new(),
            random: Pcg64::seed_from_u64(seed),
            thoughts: Pcg64::seed_from_u64(!seed),
        }
    }

    /// `requests` of `concurrency` users, each of whom sends the next one when the last is answered.
    pub fn closed(concurrency: u64, requests: u64, prompt: Length, output: Length, seed: u64) -> Self {
        Self {
            arrivals: None,
            prompt,
            output,
            left: requests,
            next: 0,
            at: Seconds::ZERO,
            think: ThinkTime::NONE,
            pending: (0..concurrency.min(requests)).map(|_| Reverse(Picos::ZERO)).collect(),
            random: Pcg64::seed_from_u64(seed),
            thoughts: Pcg64::seed_from_u64(!seed),
        }
    }

    /// The same users, who think for so long before each request but the first, and begin one after the other within `ramp`.
    pub fn thinking(mut self, think: ThinkTime, ramp: Seconds) -> Self {
        let users = self.pending.len();
        let begins = |user| Reverse(Picos::rounding_up(ramp * (user as f64 / users as f64)));
        self.pending = (0..users).map(begins).collect();
        Self { think, ..self }
    }

    fn thought(&mut self) -> Seconds {
        let random = &mut self.thoughts;
        match self.think {
            ThinkTime::Fixed(time) => time,
            ThinkTime::Uniform { from, to } => from + (to - from) * random.random::<f64>(),
            ThinkTime::LogNormal { mean, cv } => Seconds::new(log_normal(mean.get(), cv).sample(random)),
        }
    }

    fn arrival(&mut self) -> Option<Picos> {
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
        Some(Picos::rounding_up(self.at))
    }

    fn length(random: &mut Pcg64, length: Length) -> u64 {
        match length {
            Length::Fixed(tokens) => tokens,
            Length::Uniform { from, to } => random.random_range(from..=to),
            Length::LogNormal { mean, cv } => (log_normal(mean, cv).sample(random).round() as u64).max(1),
        }
    }
}

/// Whose mean is `mean` and whose standard deviation `cv` times that.
fn log_normal(mean: f64, cv: f64) -> LogNormal<f64> {
    let variance = (1.0 + cv * cv).ln();
    let spread = LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt());
    spread.expect("a scenario's mean and cv are above 0")
}

impl Source for Generated {
    fn next(&mut self) -> Option<Request> {
        if self.left == 0 {
            return None;
        }
        let arrival = self.arrival()?;
        let id = self.next;
        self.left -= 1;
        self.next += 1;
        let prompt_tokens = Self::length(&mut self.random, self.prompt);
        let output_tokens = Self::length(&mut self.random, self.output);
        Some(Request { id, arrival, prompt_tokens, output_tokens, prefix: Vec::new() })
    }

    fn done(&mut self, at: Picos) {
        if self.arrivals.is_none() {
            let at = at + Picos::rounding_up(self.thought());
            self.pending.push(Reverse(at));
        }
    }

    fn sooner(&mut self, held: &mut Request) {
        if let Some(mut first) = self.pending.peek_mut()
            && first.0 < held.arrival
        {
            std::mem::swap(&mut first.0, &mut held.arrival);
        }
    }

    fn listens(&self) -> bool {
        self.arrivals.is_none()
    }
}
