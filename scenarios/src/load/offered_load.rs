//! How much is asked of machines: requests in a second, or users who wait for answers; and the same with more of them.

use crate::input::error::ScenarioError;
use crate::load::arrivals::{Arrivals, Requests};
use crate::load::request_trace::RequestTrace;
use hwprofiles::{Ratio, RequestsPerSec};
use std::fmt;
use std::fs::File;
use std::io::BufReader;

/// What a load is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadUnit {
    /// Requests per second, which come by themselves.
    Requests,
    /// Users, each of whom waits for an answer before the next request.
    Users,
}

impl LoadUnit {
    /// As it is written behind a number.
    pub fn name(self) -> &'static str {
        match self {
            LoadUnit::Requests => "req/s",
            LoadUnit::Users => "users",
        }
    }
}

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// How many.
    pub amount: f64,
    /// Of what.
    pub unit: LoadUnit,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            LoadUnit::Requests => RequestsPerSec::new(self.amount).fmt(f),
            LoadUnit::Users => write!(f, "{} users", self.amount),
        }
    }
}

impl Arrivals {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        match *self {
            Arrivals::Poisson { rate }
            | Arrivals::Uniform { rate }
            | Arrivals::Gamma { rate, .. }
            | Arrivals::Bursts { rate, .. } => rate,
        }
    }

    fn at(self, faster: f64) -> Self {
        let mut same = self;
        match &mut same {
            Arrivals::Poisson { rate }
            | Arrivals::Uniform { rate }
            | Arrivals::Gamma { rate, .. }
            | Arrivals::Bursts { rate, .. } => *rate *= faster,
        }
        same
    }
}

impl Requests {
    /// What their load is counted in.
    pub fn unit(&self) -> LoadUnit {
        match self {
            Requests::Closed { .. } => LoadUnit::Users,
            Requests::Open { .. } | Requests::Trace { .. } => LoadUnit::Requests,
        }
    }

    /// How many there are; `None` for a trace whose requests come all at once.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn load(&self) -> Result<Option<f64>, ScenarioError> {
        match self {
            Requests::Closed { concurrency, .. } => Ok(Some(*concurrency as f64)),
            Requests::Open { arrivals, .. } => Ok(Some(arrivals.rate())),
            Requests::Trace { path, requests, speedup } => {
                let unreadable = |reason| ScenarioError::Unreadable { path: path.clone(), reason };
                let file = BufReader::new(File::open(path).map_err(unreadable)?);
                let name = path.display().to_string();
                let trace = RequestTrace::new(file, &name).map_err(ScenarioError::Trace)?;
                let (mut count, mut first, mut last) = (0_u64, None, 0.0);
                for request in trace.take(requests.map_or(usize::MAX, |count| count as usize)) {
                    last = request.map_err(ScenarioError::Trace)?.at.get();
                    first = first.or(Some(last));
                    count += 1;
                }
                let time = last - first.unwrap_or(0.0);
                Ok((time > 0.0).then(|| (count - 1) as f64 / time * speedup))
            }
        }
    }

    /// The same requests, so many times as close together, or of so many times the users; of random ones at least `least`.
    pub fn denser(&self, faster: Ratio, least: u64) -> Self {
        let mut same = self.clone();
        match &mut same {
            Requests::Closed { concurrency, requests, .. } => {
                *concurrency = (*concurrency as f64 * faster.get()).round().max(1.0) as u64;
                *requests = least.max(*requests);
            }
            Requests::Open { arrivals, requests, .. } => {
                *arrivals = arrivals.at(faster.get());
                *requests = least.max(*requests);
            }
            Requests::Trace { speedup, .. } => *speedup *= faster.get(),
        }
        same
    }
}
