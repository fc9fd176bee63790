//! Requests of a serving workload: when they arrive, and how long they are.

use hwprofiles::Seconds;
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// The arrival process of requests that do not wait for earlier answers. Rates are requests per
/// second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Independent arrivals: gaps are exponentially distributed.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Equal gaps.
    Uniform {
        /// Requests per second.
        rate: f64,
    },
    /// Gamma-distributed gaps: burstier than Poisson if `cv` is above 1.
    Gamma {
        /// Requests per second.
        rate: f64,
        /// Standard deviation of the gaps ÷ their mean.
        cv: f64,
    },
    /// Requests arrive in groups; the groups are a Poisson process.
    Bursts {
        /// Requests per second.
        rate: f64,
        /// Requests in a group.
        size: u64,
    },
}

/// The distribution of the lengths of prompts or outputs, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// All have this length.
    Fixed(u64),
    /// Uniformly distributed, both ends included.
    Uniform {
        /// The shortest.
        from: u64,
        /// The longest.
        to: u64,
    },
    /// Log-normally distributed.
    LogNormal {
        /// Mean, in tokens.
        mean: f64,
        /// Standard deviation ÷ mean.
        cv: f64,
    },
}

impl Length {
    /// The mean length, in tokens.
    pub fn mean(&self) -> f64 {
        match *self {
            Length::Fixed(tokens) => tokens as f64,
            Length::Uniform { from, to } => (from + to) as f64 / 2.0,
            Length::LogNormal { mean, .. } => mean,
        }
    }

    /// The shortest length, in tokens.
    pub(crate) fn least(&self) -> u64 {
        match *self {
            Length::Fixed(tokens) | Length::Uniform { from: tokens, .. } => tokens,
            Length::LogNormal { .. } => 1,
        }
    }
}

/// The distribution of the time between an answer and the user's next request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkTime {
    /// Always this time; zero for users who do not think.
    Fixed(Seconds),
    /// Uniformly distributed, both ends included.
    Uniform {
        /// The shortest.
        from: Seconds,
        /// The longest.
        to: Seconds,
    },
    /// Log-normally distributed.
    LogNormal {
        /// Mean.
        mean: Seconds,
        /// Standard deviation ÷ mean.
        cv: f64,
    },
}

impl ThinkTime {
    /// No time to think.
    pub const NONE: Self = Self::Fixed(Seconds::ZERO);

    /// The mean time.
    pub fn mean(&self) -> Seconds {
        match *self {
            ThinkTime::Fixed(time) => time,
            ThinkTime::Uniform { from, to } => (from + to) / 2.0,
            ThinkTime::LogNormal { mean, .. } => mean,
        }
    }
}

/// The source of the requests of a serving workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Requests {
    /// A closed loop: each user sends the next request some time after the answer to the last one.
    Closed {
        /// Users.
        concurrency: u64,
        /// The time between an answer and the user's next request.
        think: ThinkTime,
        /// The time over which the users start, at equal distances.
        ramp: Seconds,
        /// Requests of all users together.
        requests: u64,
        /// Lengths of prompts.
        prompt: Length,
        /// Lengths of outputs.
        output: Length,
    },
    /// An open loop: requests arrive whether earlier ones are answered or not.
    Open {
        /// The arrival process.
        arrivals: Arrivals,
        /// Requests of all users together.
        requests: u64,
        /// Lengths of prompts.
        prompt: Length,
        /// Lengths of outputs.
        output: Length,
    },
    /// A recorded trace.
    Trace {
        /// The file.
        #[serde(serialize_with = "lossy_path")]
        path: PathBuf,
        /// Only the first requests of the trace, this many; `None` means all.
        requests: Option<u64>,
        /// Factor by which the trace is replayed faster.
        speedup: f64,
    },
}

/// A path as text. Bytes that are not UTF-8 are replaced, because JSON cannot hold them.
fn lossy_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}
