//! The offered load: requests per second, or users who wait for answers; and how to scale it.

use crate::input::error::ScenarioError;
use crate::load::arrivals::{Arrivals, Requests};
use crate::load::request_trace::RequestTrace;
use hwprofiles::{Ratio, RequestsPerSec};
use std::fmt;
use std::io::BufReader;
use std::path::Path;

/// The unit of an offered load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadUnit {
    /// Requests per second, which arrive independently of answers.
    Requests,
    /// Users, each of whom waits for an answer before sending the next request.
    Users,
}

impl LoadUnit {
    /// As it follows a number.
    pub fn name(self) -> &'static str {
        match self {
            LoadUnit::Requests => "req/s",
            LoadUnit::Users => "users",
        }
    }
}

/// An offered load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OfferedLoad {
    /// The number, in `unit`.
    pub amount: f64,
    /// The unit.
    pub unit: LoadUnit,
    /// How many requests a trace has; `None` for requests that are drawn, which have no end.
    pub recorded: Option<u64>,
}

impl fmt::Display for OfferedLoad {
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

    /// The same process with `factor` times the rate.
    fn scaled(self, factor: f64) -> Self {
        let mut same = self;
        match &mut same {
            Arrivals::Poisson { rate }
            | Arrivals::Uniform { rate }
            | Arrivals::Gamma { rate, .. }
            | Arrivals::Bursts { rate, .. } => *rate *= factor,
        }
        same
    }
}

impl Requests {
    /// The unit of their load.
    pub fn load_unit(&self) -> LoadUnit {
        match self {
            Requests::Closed { .. } => LoadUnit::Users,
            Requests::Open { .. } | Requests::Trace { .. } => LoadUnit::Requests,
        }
    }

    /// Their load; `None` for a trace whose requests arrive all at once.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn offered_load(&self) -> Result<Option<OfferedLoad>, ScenarioError> {
        let (amount, recorded) = match self {
            Requests::Closed { concurrency, .. } => (Some(*concurrency as f64), None),
            Requests::Open { arrivals, .. } => (Some(arrivals.rate()), None),
            Requests::Trace { path, requests, speedup } => {
                let (count, time) = trace_extent(path, *requests)?;
                ((time > 0.0).then(|| (count - 1) as f64 / time * speedup), Some(count))
            }
        };
        Ok(amount.map(|amount| OfferedLoad { amount, unit: self.load_unit(), recorded }))
    }

    /// The same requests with `factor` times the rate, or `factor` times the users. Random requests
    /// become at least `min_requests`.
    pub fn scaled(&self, factor: Ratio, min_requests: u64) -> Self {
        let mut same = self.clone();
        match &mut same {
            Requests::Closed { concurrency, requests, .. } => {
                *concurrency = (*concurrency as f64 * factor.get()).round().max(1.0) as u64;
                *requests = min_requests.max(*requests);
            }
            Requests::Open { arrivals, requests, .. } => {
                *arrivals = arrivals.scaled(factor.get());
                *requests = min_requests.max(*requests);
            }
            Requests::Trace { speedup, .. } => *speedup *= factor.get(),
        }
        same
    }
}

/// The number of the first `most` requests of a trace, and the seconds from the first to the last.
fn trace_extent(path: &Path, most: Option<u64>) -> Result<(u64, f64), ScenarioError> {
    let unreadable = |reason| ScenarioError::Unreadable { path: path.to_owned(), reason };
    let file = BufReader::new(hwprofiles::open_input(path).map_err(unreadable)?);
    let trace = RequestTrace::new(file, &path.display().to_string()).map_err(ScenarioError::Trace)?;
    let (mut count, mut first, mut last) = (0, None, 0.0);
    for request in trace.take(most.map_or(usize::MAX, |count| count as usize)) {
        last = request.map_err(ScenarioError::Trace)?.at.get();
        first = first.or(Some(last));
        count += 1;
    }
    Ok((count, last - first.unwrap_or(0.0)))
}
