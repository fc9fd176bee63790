//! Which of several replicas a request goes to.

use super::batch::StepPrices;
use super::replica::Replica;
use super::request::Request;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use scenarios::Routing;

/// Sends requests to replicas.
///
/// Only what a router in front of engines can know is asked: how many requests each has not answered yet, and, for
/// [`Routing::CacheAware`], what each still has of the prompt, as routers know it that keep a tree of what they sent where.
#[derive(Debug, Clone)]
pub struct Router {
    routing: Routing,
    turn: usize,
    random: Pcg64,
    /// Tokens that each had to compute of the prompts that were sent for its cache.
    computed: Vec<u64>,
}

/// A replica with so many more unanswered requests than another, and [`UNBALANCED`] times as many, makes the router forget
/// about caches: the thresholds of SGLang's router. As there, a prompt that nobody knows goes where the least was computed.
const APART: usize = 64;
const UNBALANCED: f64 = 1.5;

impl Router {
    /// One that has sent nothing yet.
    pub fn new(routing: Routing, seed: u64) -> Self {
        Self { routing, turn: 0, random: Pcg64::seed_from_u64(seed), computed: Vec::new() }
    }

    /// The replica that gets `request`, where each has so many unanswered ones; of equals the first.
    pub(super) fn choose<P: StepPrices>(
        &mut self,
        request: &Request,
        replicas: &[Replica<P>],
        unanswered: &[usize],
    ) -> usize {
        let all = replicas.len();
        let fewest = || (0..all).min_by_key(|&index| unanswered[index]).unwrap_or(0);
        match self.routing {
            Routing::RoundRobin => {
                self.turn += 1;
                (self.turn - 1) % all
            }
            Routing::LeastRequests => fewest(),
            Routing::TwoChoices => {
                let any = [self.random.random_range(0..all), self.random.random_range(0..all)];
                any.into_iter().min_by_key(|&index| (unanswered[index], index)).unwrap_or(0)
            }
            Routing::CacheAware => {
                let (least, most) = (fewest(), unanswered.iter().copied().max().unwrap_or(0));
                let few = unanswered[least];
                if most > few + APART && most as f64 > few as f64 * UNBALANCED {
                    return least;
                }
                self.computed.resize(all, 0);
                let lacks = |index: usize| request.prompt_tokens - replicas[index].cached(request);
                let chosen = (0..all).min_by_key(|&index| (lacks(index), self.computed[index]));
                let chosen = chosen.unwrap_or(least);
                self.computed[chosen] += lacks(chosen);
                chosen
            }
        }
    }
}
