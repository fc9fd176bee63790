//! How requests are shared among replicas.

/// Which replica a request goes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Routing {
    /// Each in turn; of a closed loop, each has users of its own.
    #[default]
    RoundRobin,
    /// The one with the fewest unanswered requests.
    LeastRequests,
    /// Of two that are drawn, the one with fewer.
    TwoChoices,
    /// The one that has most of the prompt in its KV cache, unless it has far more to do than another.
    CacheAware,
}

impl Routing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::LeastRequests, Self::TwoChoices, Self::CacheAware];

    /// As scenarios write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequests => "least_requests",
            Self::TwoChoices => "two_choices",
            Self::CacheAware => "cache_aware",
        }
    }
}
