//! Several replicas behind a router, in one time.
//!
//! The router's knowledge at a time, and the requests of a closed loop at that time, depend on all
//! earlier answers and on no later ones. So a replica may run ahead of the others while nothing
//! depends on its answers. If requests depend on answers, the replica that is furthest behind
//! always works first, step after step.

use crate::clock::{EventQueue, SimTime};
use crate::serving::engine::observer::{EngineObserver, RequestOutcome};
use crate::serving::engine::request::{Request, ServedRequest};
use crate::serving::fleet::router::Router;
use crate::serving::fleet::source::RequestSource;
use crate::serving::prices::batch::StepPrices;
use crate::serving::schedule::replica::Replica;
use hwprofiles::MissingRate;
use scenarios::Routing;
use std::collections::BTreeMap;
use std::slice;

/// Controls replicas while they work: at times of its own it may change them.
pub trait FleetController<P> {
    /// When it acts next, not before its last action; `None` if never.
    fn due(&self) -> Option<SimTime> {
        None
    }

    /// Acts at the due time. No replica has begun a step at this time or later.
    ///
    /// # Errors
    /// A rate that was not measured.
    fn act(&mut self, _replicas: &mut [Replica<P>]) -> Result<(), MissingRate> {
        Ok(())
    }
}

impl<P> FleetController<P> for () {}

/// Replicas at work. Each has its observer, which hears the outcomes of the requests that went
/// there.
struct Fleet<'a, P, W> {
    replicas: &'a mut [Replica<P>],
    observers: &'a mut [W],
    /// For each replica, the requests whose outcome was not reported yet.
    unanswered: Vec<usize>,
    /// Answers that were not reported yet. Answers at one time are ordered by replica, then in the
    /// order of the replica.
    answers: EventQueue<Answer>,
    /// For each replica, when its tokeniser is free.
    tokenisers: Vec<SimTime>,
    /// Requests on the way into an engine, by the time at which it may schedule them.
    entering: EventQueue<Entering>,
    /// The arrivals of requests that were on the way.
    arrivals: BTreeMap<u64, SimTime>,
}

struct Entering {
    replica: usize,
    request: Request,
}

struct Answer {
    replica: usize,
    served: ServedRequest,
}

/// Why requests cannot be served to their end.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ServeError {
    /// A rate that was not measured.
    #[error(transparent)]
    Rate(#[from] MissingRate),
    /// A request arrives, or is answered, beyond [`SimTime::MAX`].
    #[error(
        "workload: the requests come or are answered after the {LAST_DAY} days that simulated time has: ask for \
         fewer of them, or for a higher rate"
    )]
    ClockEnds,
}

/// The whole days of simulated time.
const LAST_DAY: u64 = SimTime::MAX.picos() / SimTime::DAY.picos();

/// Serves all of `source` on `replica`, and reports the outcome of each request to `observer`, in
/// the order of the ends.
///
/// # Errors
/// A rate that was not measured, or more time than there is.
pub fn serve<P: StepPrices>(
    source: &mut impl RequestSource,
    replica: &mut Replica<P>,
    observer: &mut impl EngineObserver,
) -> Result<(), ServeError> {
    let mut router = Router::new(Routing::RoundRobin, 0);
    serve_fleet(source, slice::from_mut(replica), &mut router, &mut (), slice::from_mut(observer))
}

/// Serves all of `source` on `replicas`. The controller acts as long as there are requests.
///
/// # Errors
/// A rate that was not measured, or more time than there is.
///
/// # Panics
/// If there is no replica, or not one observer for each.
pub fn serve_fleet<P: StepPrices, W: EngineObserver>(
    source: &mut impl RequestSource,
    replicas: &mut [Replica<P>],
    router: &mut Router,
    controller: &mut impl FleetController<P>,
    observers: &mut [W],
) -> Result<(), ServeError> {
    assert!(!replicas.is_empty() && replicas.len() == observers.len(), "an observer for each replica");
    let mut fleet = Fleet {
        unanswered: vec![0; replicas.len()],
        tokenisers: vec![SimTime::ZERO; replicas.len()],
        replicas,
        observers,
        answers: EventQueue::new(),
        entering: EventQueue::new(),
        arrivals: BTreeMap::new(),
    };
    let mut next = source.next();
    loop {
        let entering = fleet.entering.next_time();
        let sent = next.as_ref().map_or(SimTime::MAX, |request| request.arrival);
        let sent = entering.map_or(sent, |entering| entering.min(sent));
        let due = controller.due().unwrap_or(SimTime::MAX);
        fleet.advance(sent.min(due), source.depends_on_answers())?;
        match fleet.answers.next_time() {
            None if next.is_none() && entering.is_none() && !fleet.has_work() => return Ok(()),
            Some(at) if at <= sent.min(due) => {
                fleet.report_first();
                source.done(at);
                if let Some(held) = &mut next {
                    source.replace_if_sooner(held);
                }
            }
            _ if due < sent => controller.act(fleet.replicas)?,
            _ if entering == Some(sent) => {
                let (_, Entering { replica, request }) = fleet.entering.pop().expect("it was seen");
                fleet.enter(replica, request, source);
            }
            _ => {
                // Without a next request there is an answer, except at the end of time.
                let in_time = |request: &Request| request.arrival < SimTime::MAX;
                let request = next.take().filter(in_time).ok_or(ServeError::ClockEnds)?;
                fleet.submit(request, router, source);
            }
        }
        next = next.or_else(|| source.next());
    }
}

impl<P: StepPrices, W: EngineObserver> Fleet<'_, P, W> {
    /// Does all work until `until`. With `together` no replica runs ahead of another replica's
    /// answer.
    fn advance(&mut self, until: SimTime, together: bool) -> Result<(), ServeError> {
        loop {
            let until =
                if together { self.answers.next_time().map_or(until, |at| at.min(until)) } else { until };
            let mut behind =
                self.replicas.iter().enumerate().filter(|(_, r)| r.has_work() && r.now() < until);
            let index = match together {
                true => behind.min_by_key(|(_, replica)| replica.now()),
                false => behind.next(),
            };
            let Some((index, _)) = index else { return Ok(()) };
            let others =
                self.replicas.iter().enumerate().filter(|(other, r)| *other != index && r.has_work());
            let limit = match together {
                // At least one step: the others are not behind.
                true => others
                    .map(|(_, other)| other.now() + SimTime::from_picos(1))
                    .min()
                    .unwrap_or(until)
                    .min(until),
                false => until,
            };
            let replica = &mut self.replicas[index];
            replica.advance(limit, &mut self.observers[index])?;
            for served in replica.served() {
                if served.last_token == SimTime::MAX {
                    return Err(ServeError::ClockEnds);
                }
                self.answers.schedule(served.last_token, index, Answer { replica: index, served });
            }
        }
    }

    fn has_work(&self) -> bool {
        self.replicas.iter().any(Replica::has_work)
    }

    fn report_first(&mut self) {
        if let Some((_, Answer { replica, mut served })) = self.answers.pop() {
            self.unanswered[replica] -= 1;
            served.arrival = self.arrivals.remove(&served.id).unwrap_or(served.arrival);
            self.observers[replica].end(&RequestOutcome::Served(served));
        }
    }

    /// Sends a request to a replica, through that engine's front end if it has one.
    fn submit(&mut self, request: Request, router: &mut Router, source: &mut impl RequestSource) {
        let replica = router.choose(&request, self.replicas, &self.unanswered);
        self.unanswered[replica] += 1;
        let front_end = self.replicas[replica].front_end();
        if front_end.lets_in_at_once() {
            return self.enter(replica, request, source);
        }
        let free = &mut self.tokenisers[replica];
        *free = request.arrival.max(*free) + front_end.tokeniser.time(request.prompt_tokens);
        let at = *free + front_end.per_request;
        self.arrivals.insert(request.id, request.arrival);
        let request = Request { arrival: at, ..request };
        self.entering.schedule(at, replica, Entering { replica, request });
    }

    /// Gives the request to its engine.
    fn enter(&mut self, replica: usize, request: Request, source: &mut impl RequestSource) {
        let at = request.arrival;
        if let Err((mut request, reason)) = self.replicas[replica].submit(request) {
            self.unanswered[replica] -= 1;
            source.done(at);
            request.arrival = self.arrivals.remove(&request.id).unwrap_or(at);
            self.observers[replica].end(&RequestOutcome::Rejected(request, reason));
        }
    }
}
