//! Serving workloads: requests that come and go.

use hwprofiles::Seconds;
use std::path::PathBuf;

/// When requests come that do not wait for each other's answers. Rates are requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Independent of each other: gaps are exponential.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// One after each equal gap.
    Uniform {
        /// Requests per second.
        rate: f64,
    },
    /// Gaps of a gamma distribution: burstier than Poisson where `cv` is above 1.
    Gamma {
        /// Requests per second.
        rate: f64,
        /// Standard deviation of the gaps ÷ their mean.
        cv: f64,
    },
    /// Groups that come together; the groups are Poisson.
    Bursts {
        /// Requests per second.
        rate: f64,
        /// Requests of a group.
        size: u64,
    },
}

/// How long prompts, or answers, are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// All the same.
    Fixed(u64),
    /// Equally often each.
    Uniform {
        /// The shortest.
        from: u64,
        /// The longest.
        to: u64,
    },
    /// Logarithms are normal.
    LogNormal {
        /// Mean tokens.
        mean: f64,
        /// Standard deviation ÷ mean.
        cv: f64,
    },
}

impl Length {
    /// Mean tokens.
    pub fn mean(&self) -> f64 {
        match *self {
            Length::Fixed(tokens) => tokens as f64,
            Length::Uniform { from, to } => (from + to) as f64 / 2.0,
            Length::LogNormal { mean, .. } => mean,
        }
    }
}

/// How long a user thinks between an answer and the next request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThinkTime {
    /// Always as long; zero for users who never do.
    Fixed(Seconds),
    /// Equally often each.
    Uniform {
        /// The shortest.
        from: Seconds,
        /// The longest.
        to: Seconds,
    },
    /// Logarithms are normal.
    LogNormal {
        /// Mean.
        mean: Seconds,
        /// Standard deviation ÷ mean.
        cv: f64,
    },
}

impl ThinkTime {
    /// Who never thinks.
    pub const NONE: Self = Self::Fixed(Seconds::ZERO);

    /// In the mean.
    pub fn mean(&self) -> Seconds {
        match *self {
            ThinkTime::Fixed(time) => time,
            ThinkTime::Uniform { from, to } => (from + to) / 2.0,
            ThinkTime::LogNormal { mean, .. } => mean,
        }
    }
}

/// Where the requests of a serving workload come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Requests {
    /// So many users, each of whom sends the next request when the last is answered and thought about.
    Closed {
        /// Users.
        concurrency: u64,
        /// How long they think.
        think: ThinkTime,
        /// The time over which they begin, one after the other at equal distances.
        ramp: Seconds,
        /// Requests, all together.
        requests: u64,
        /// Prompts.
        prompt: Length,
        /// Answers.
        output: Length,
    },
    /// Whether answered or not.
    Open {
        /// When.
        arrivals: Arrivals,
        /// Requests, all together.
        requests: u64,
        /// Prompts.
        prompt: Length,
        /// Answers.
        output: Length,
    },
    /// As they were recorded.
    Trace {
        /// The file.
        path: PathBuf,
        /// The first so many of it; all where absent.
        requests: Option<u64>,
        /// So many times as fast.
        speedup: f64,
    },
}
