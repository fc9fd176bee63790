//! Several replicas behind a router.

use crate::cases::cases;
use crate::laws::queueing;
use crate::laws::serving::{Observations, Prices, by_id, engines, requests};
use hwprofiles::Seconds;
use proptest::prelude::*;
use scenarios::{Length, Routing, ThinkTime};
use sim::SimTime;
use sim::serving::{
    EngineObserver, EngineSettings, GeneratedRequests, Replica, Request, RequestOutcome, RequestSource,
    Router, ServedRequest, StepPrices, serve, serve_fleet, serve_in_step,
};
use std::cell::RefCell;
use std::rc::Rc;

/// Serves the requests on `replicas` replicas. Returns the observations of each replica.
fn served(
    engine: &EngineSettings,
    replicas: usize,
    routing: Routing,
    prices: &(impl StepPrices + Clone),
    source: &mut impl RequestSource,
) -> Vec<Observations> {
    let mut observed: Vec<Observations> = (0..replicas).map(|_| Observations::default()).collect();
    let mut fleet: Vec<_> = observed.iter().map(|_| Replica::new(engine.clone(), prices.clone())).collect();
    serve_fleet(source, &mut fleet, &mut Router::new(routing, 3), &mut (), &mut observed).unwrap();
    assert!(fleet.iter().all(|replica| !replica.has_work() && replica.free_blocks() == engine.num_blocks));
    observed
}

fn all(observed: Vec<Observations>) -> Vec<ServedRequest> {
    by_id(observed.into_iter().flat_map(|observed| observed.served).collect())
}

fn routings() -> impl Strategy<Value = Routing> {
    prop::sample::select(Routing::ALL.to_vec())
}

/// The most unanswered requests at a time.
fn most_at_once(served: &[ServedRequest]) -> i64 {
    let mut changes: Vec<_> =
        served.iter().flat_map(|one| [(one.arrival, 1), (one.last_token, -1)]).collect();
    // At one time, answers come before arrivals.
    changes.sort_unstable();
    let inside = changes.iter().scan(0, |inside, (_, change)| {
        *inside += change;
        Some(*inside)
    });
    inside.max().unwrap_or(0)
}

#[test]
fn engines_that_share_experts_begin_their_steps_together() {
    let engine = queueing::engine(8);
    let prices = queueing::Prices { step: 100, token: 1 };
    let prefix = Vec::new;
    // The second prompt takes ten times as long, on the other engine: the first answer waits once.
    let requests = [(0, 0, 10), (1, 50, 1000)].map(|(id, arrival, prompt_tokens)| Request {
        id,
        arrival: SimTime::from_picos(arrival),
        prompt_tokens,
        output_tokens: 3,
        prefix: prefix(),
    });
    let mut observed: Vec<Observations> = (0..2).map(|_| Observations::default()).collect();
    let mut fleet: Vec<_> = observed.iter().map(|_| Replica::new(engine.clone(), prices)).collect();
    let mut router = Router::new(Routing::LeastRequests, 3);
    serve_in_step(&mut requests.into_iter(), &mut fleet, &mut router, &mut (), &mut observed).unwrap();
    let times: Vec<_> =
        all(observed).iter().map(|one| [one.first_token, one.last_token].map(SimTime::picos)).collect();
    // Steps begin at 0, 110, 1210 and 1310.
    assert_eq!(times, [[110, 1310], [1210, 1410]]);
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn one_engine_is_in_step_with_itself(engine in engines(), requests in requests(true)) {
        let prices = Prices { stretch: 50 };
        let alone = served(&engine, 1, Routing::RoundRobin, &prices, &mut requests.iter().cloned());
        let mut observed = vec![Observations::default()];
        let mut fleet = vec![Replica::new(engine.clone(), prices)];
        let mut router = Router::new(Routing::RoundRobin, 3);
        serve_in_step(&mut requests.iter().cloned(), &mut fleet, &mut router, &mut (), &mut observed).unwrap();
        prop_assert_eq!(all(observed), all(alone));
    }

    #[test]
    fn with_round_robin_replicas_are_independent(
        engine in engines(), requests in requests(true), replicas in 1usize..4,
    ) {
        let prices = Prices { stretch: 50 };
        let observed = served(&engine, replicas, Routing::RoundRobin, &prices, &mut requests.iter().cloned());
        for (share, observed) in observed.into_iter().enumerate() {
            let (mut alone, mut replica) = (Observations::default(), Replica::new(engine.clone(), prices.clone()));
            let mut own = requests.iter().skip(share).step_by(replicas).cloned();
            serve(&mut own, &mut replica, &mut alone).unwrap();
            prop_assert_eq!(observed.served, alone.served);
        }
    }

    #[test]
    fn every_request_goes_to_one_replica_with_any_router(
        engine in engines(), requests in requests(true), replicas in 1usize..4, routing in routings(),
    ) {
        let observed = served(&engine, replicas, routing, &Prices { stretch: 50 }, &mut requests.iter().cloned());
        prop_assert_eq!(observed.iter().map(|observed| observed.ends).sum::<usize>(), requests.len());
        let served = all(observed);
        prop_assert!(served.windows(2).all(|pair| pair[0].id < pair[1].id));
        prop_assert!(served.iter().all(|one| one.arrival <= one.scheduled && one.scheduled < one.first_token));
    }

    #[test]
    fn a_closed_loop_over_replicas_is_the_same_in_series_and_step_by_step(
        engine in engines(), replicas in 1usize..4, routing in routings(), users in 1u64..9, seed in 0u64..1000,
        think in thoughts(), ramp in (0.0..1e-7).prop_map(Seconds::new),
    ) {
        let run = |stretch: u64| {
            let length = |from, to| Length::Uniform { from, to };
            let mut users = GeneratedRequests::closed(users, 30, length(1, 39), length(1, 29), seed).thinking(think, ramp);
            served(&engine, replicas, routing, &Prices { stretch }, &mut users)
        };
        let (whole, single) = (run(1 << 40), run(1));
        prop_assert_eq!(whole.iter().map(|observed| observed.ends).sum::<usize>(), 30);
        let (whole, single) = (all(whole), all(single));
        prop_assert_eq!(&whole, &single);
        prop_assert!(most_at_once(&whole) <= users as i64);
        prop_assert!(whole.is_sorted_by_key(|one| one.arrival), "numbers are in the order of arrival");
    }

    #[test]
    fn users_are_throughput_times_response_and_thinking(
        engine in engines(), users in 1u64..9, seed in 0u64..1000, think in thoughts(),
    ) {
        // Little's law of a closed loop: until the end, each user waits for an answer or thinks.
        let (length, rounds) = (|from, to| Length::Uniform { from, to }, 600);
        let engine = EngineSettings { num_blocks: 80, chunked_prefill: true, ..engine };
        let mut source = GeneratedRequests::closed(users, users * rounds, length(1, 30), length(1, 29), seed)
            .thinking(think, think.mean());
        let day = all(served(&engine, 1, Routing::RoundRobin, &Prices { stretch: 50 }, &mut source));
        let end = day.iter().map(|one| one.last_token).max().expect("there are requests");
        let rate = day.len() as f64 / end.to_seconds().get();
        let response = day.iter().map(|one| one.e2el().to_seconds().get()).sum::<f64>() / day.len() as f64;
        let reckoned = rate * (response + think.mean().get());
        prop_assert_eq!(day.len() as u64, users * rounds);
        prop_assert!((reckoned / users as f64 - 1.0).abs() < 0.12, "{} of {}", reckoned, users);
        if users == 1 && think == ThinkTime::NONE {
            prop_assert!((rate * response - 1.0).abs() < 1e-9, "one after the other: {} at {}", rate, response);
        }
    }
}

/// Thinking times from none to longer than answers take.
fn thoughts() -> impl Strategy<Value = ThinkTime> {
    let time = |from: f64, to: f64| (from..to).prop_map(Seconds::new);
    prop_oneof![
        Just(ThinkTime::NONE),
        time(1e-9, 1e-6).prop_map(ThinkTime::Fixed),
        (time(0.0, 1e-7), time(1e-7, 1e-6)).prop_map(|(from, to)| ThinkTime::Uniform { from, to }),
        (time(1e-8, 1e-6), 0.1..0.5).prop_map(|(mean, cv)| ThinkTime::LogNormal { mean, cv }),
    ]
}

/// The mean time in a system of four replicas that serve one request at a time, ρ = 0.75,
/// exponential lengths.
fn mean_time_behind(routing: Routing) -> f64 {
    let (service, load, requests) = (1e6, 0.75, 200_000);
    let mut sums: Vec<_> = (0..4).map(|_| queueing::Sums::default()).collect();
    let prices = queueing::Prices { step: 0, token: 1000 };
    let mut fleet: Vec<_> = sums.iter().map(|_| Replica::new(queueing::engine(1), prices)).collect();
    let lengths = |x: f64| ((1000.0 * x).round().max(1.0) as u64, 1);
    let mut source = queueing::poisson(requests, service / (4.0 * load), lengths);
    serve_fleet(&mut source, &mut fleet, &mut Router::new(routing, 1), &mut (), &mut sums).unwrap();
    sums.iter().map(|sum| sum.time).sum::<f64>() / requests as f64 / service
}

#[test]
fn routers_with_more_knowledge_give_shorter_waits() {
    let times = [Routing::LeastRequests, Routing::TwoChoices, Routing::RoundRobin].map(mean_time_behind);
    // M/M/4 with one queue: 1 + C(4, 3) / (4 · 0.25), C = 0.509434. Four M/M/1: 1 / 0.25.
    let (one_queue, at_random) = (1.509, 4.0);
    assert!(one_queue < times[0] && times.is_sorted() && times[2] < at_random, "{times:?}");
    // Mitzenmacher 2001, table 1, has 1.94 for two choices among infinitely many servers at 0.7,
    // and 2.34 at 0.8.
    assert!((1.9..2.4).contains(&times[1]), "{times:?}");
}

#[test]
fn prompts_that_begin_alike_are_computed_once_where_the_router_knows_the_caches() {
    let engine = EngineSettings {
        num_blocks: 40,
        block_size: 4,
        prefix_tokens: 4,
        prefix_caching: true,
        chunked_prefill: true,
        max_num_batched_tokens: 64,
        ..queueing::engine(8)
    };
    // Eight conversations with long beginnings. One cache holds two of them.
    let conversation = |id: u64| {
        let prefix = (0..15).map(|index| id * 2_654_435_761 / 128 % 8 * 100 + index).collect();
        Request { id, arrival: SimTime::from_picos(id * 9000), prompt_tokens: 62, output_tokens: 3, prefix }
    };
    let cached = |routing: Routing| -> u64 {
        let mut requests = (0..800).map(conversation);
        let observed = served(&engine, 4, routing, &Prices { stretch: 50 }, &mut requests);
        all(observed).iter().map(|one| one.cached_tokens).sum()
    };
    let (aware, in_turns) = (cached(Routing::CacheAware), cached(Routing::RoundRobin));
    assert!(aware > 700 * 60 && in_turns < aware / 2, "{aware} and {in_turns}");
}

/// The answers of several replicas in one list.
#[derive(Clone, Default)]
struct Order(Rc<RefCell<Vec<SimTime>>>);

impl EngineObserver for Order {
    fn end(&mut self, end: &RequestOutcome) {
        if let RequestOutcome::Served(served) = end {
            self.0.borrow_mut().push(served.last_token);
        }
    }
}

#[test]
fn a_fleet_reports_answers_in_the_order_of_their_times() {
    let order = Order::default();
    let mut observers = vec![order.clone(); 3];
    let new = |_: &Order| Replica::new(queueing::engine(3), Prices { stretch: 50 });
    let mut fleet: Vec<_> = observers.iter().map(new).collect();
    let mut users =
        GeneratedRequests::closed(7, 200, Length::Fixed(5), Length::Uniform { from: 1, to: 40 }, 1);
    let mut router = Router::new(Routing::LeastRequests, 1);
    serve_fleet(&mut users, &mut fleet, &mut router, &mut (), &mut observers).unwrap();
    assert_eq!(order.0.borrow().len(), 200);
    assert!(order.0.borrow().is_sorted());
}
