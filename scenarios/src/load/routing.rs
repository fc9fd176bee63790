//! How a router distributes requests among replicas.

use serde::Serialize;

/// The rule by which a request is sent to a replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Each replica in turn; in a closed loop, the users are divided among the replicas.
    #[default]
    RoundRobin,
    /// The replica with the fewest unanswered requests.
    LeastRequests,
    /// The replica with fewer unanswered requests, of two that are drawn at random.
    TwoChoices,
    /// The replica with most of the prompt in its KV cache, unless its load is far above another's.
    CacheAware,
}

impl Routing {
    /// Every rule.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::LeastRequests, Self::TwoChoices, Self::CacheAware];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequests => "least_requests",
            Self::TwoChoices => "two_choices",
            Self::CacheAware => "cache_aware",
        }
    }
}
