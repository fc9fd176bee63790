//! Requests that nobody recorded: when they come, and how long they are.

use super::picos::Picos;
use super::request::Request;
use super::source::Source;
use hwprofiles::Seconds;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma, LogNormal};
use rand_pcg::Pcg64;
use scenarios::{Arrivals, Length};

/// Requests as a stream.
#[derive(Debug, Clone)]
pub struct Generated {
    arrivals: Option<Arrivals>,
    prompt: Length,
    output: Length,
    left: u64,
    next: u64,
    at: Seconds,
    /// Of a closed loop: when those come that wait for an answer.
    pending: std::collections::VecDeque<Picos>,
    random: Pcg64,
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
            pending: Default::default(),
            random: Pcg64::seed_from_u64(seed),
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
            pending: (0..concurrency.min(requests)).map(|_| Picos::ZERO).collect(),
            random: Pcg64::seed_from_u64(seed),
        }
    }

    fn arrival(&mut self) -> Option<Picos> {
        let Some(arrivals) = self.arrivals else { return self.pending.pop_front() };
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
            Length::LogNormal { mean, cv } => {
                let variance = (1.0 + cv * cv).ln();
                let spread = LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt());
                let tokens = spread.expect("a scenario's mean and cv are above 0").sample(random);
                (tokens.round() as u64).max(1)
            }
        }
    }
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
            self.pending.push_back(at);
        }
    }

    fn listens(&self) -> bool {
        self.arrivals.is_none()
    }
}
