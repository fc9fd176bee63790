//! The choice of a replica for each request.

use crate::serving::engine::request::Request;
use crate::serving::prices::batch::StepPrices;
use crate::serving::schedule::replica::Replica;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use scenarios::Routing;

/// Sends requests to replicas.
///
/// It uses only what a router in front of engines can know: the number of unanswered requests of
/// each replica and, for [`Routing::CacheAware`], the tokens of the prompt that each replica still
/// has. Real routers know these from a tree of the prompts that they sent to each replica.
#[derive(Debug, Clone)]
pub struct Router {
    routing: Routing,
    next: usize,
    random: Pcg64,
    /// For each replica, the prompt tokens that it had to compute of the requests sent for its
    /// cache.
    computed: Vec<u64>,
}

/// If one replica has [`UNBALANCED_BY`] more unanswered requests than another, and
/// [`UNBALANCED_TIMES`] times as many, the router ignores caches. These are the thresholds of
/// SGLang's router. As there, a prompt that no replica knows goes to the replica that computed the
/// fewest tokens.
const UNBALANCED_BY: usize = 64;
const UNBALANCED_TIMES: f64 = 1.5;

impl Router {
    /// A router that has sent nothing yet.
    pub fn new(routing: Routing, seed: u64) -> Self {
        Self { routing, next: 0, random: Pcg64::seed_from_u64(seed), computed: Vec::new() }
    }

    /// The index of the replica that gets `request`, given the unanswered requests of each. Of
    /// equals it is the first.
    pub(crate) fn choose<P: StepPrices>(
        &mut self,
        request: &Request,
        replicas: &[Replica<P>],
        unanswered: &[usize],
    ) -> usize {
        let all = replicas.len();
        let fewest = || (0..all).min_by_key(|&index| unanswered[index]).unwrap_or(0);
        match self.routing {
            Routing::RoundRobin => {
                self.next += 1;
                (self.next - 1) % all
            }
            Routing::LeastRequests => fewest(),
            Routing::TwoChoices => {
                let choices = [self.random.random_range(0..all), self.random.random_range(0..all)];
                choices.into_iter().min_by_key(|&index| (unanswered[index], index)).unwrap_or(0)
            }
            Routing::CacheAware => {
                let (least, most) = (fewest(), unanswered.iter().copied().max().unwrap_or(0));
                let few = unanswered[least];
                if most > few + UNBALANCED_BY && most as f64 > few as f64 * UNBALANCED_TIMES {
                    return least;
                }
                self.computed.resize(all, 0);
                let lacks = |index: usize| request.prompt_tokens - replicas[index].cached_tokens(request);
                let chosen = (0..all).min_by_key(|&index| (lacks(index), self.computed[index]));
                let chosen = chosen.unwrap_or(least);
                self.computed[chosen] += lacks(chosen);
                chosen
            }
        }
    }
}
