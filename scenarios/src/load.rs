//! How many requests come in a second, and the same requests closer together.

use crate::arrivals::{Arrivals, Requests};
use crate::error::ScenarioError;
use crate::request_trace::RequestTrace;
use hwprofiles::{Ratio, RequestsPerSec};
use std::fs::File;
use std::io::BufReader;

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
    /// How many come in a second; `None` for users who wait for their answers.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn rate(&self) -> Result<Option<RequestsPerSec>, ScenarioError> {
        match self {
            Requests::Closed { .. } => Ok(None),
            Requests::Open { arrivals, .. } => Ok(Some(RequestsPerSec::new(arrivals.rate()))),
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
                Ok((time > 0.0).then(|| RequestsPerSec::new((count - 1) as f64 / time * speedup)))
            }
        }
    }

    /// The same requests, so many times as close together; of random ones at least `least`.
    pub fn denser(&self, faster: Ratio, least: u64) -> Self {
        let mut same = self.clone();
        match &mut same {
            Requests::Closed { .. } => {}
            Requests::Open { arrivals, requests, .. } => {
                *arrivals = arrivals.at(faster.get());
                *requests = least.max(*requests);
            }
            Requests::Trace { speedup, .. } => *speedup *= faster.get(),
        }
        same
    }
}
