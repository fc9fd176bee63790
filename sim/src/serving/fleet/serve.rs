//! Several replicas behind a router, on one simulated clock.
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
use std::collections::{BTreeMap, VecDeque};
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
    /// The tokeniser of each replica.
    tokenisers: Vec<Tokeniser>,
    /// Requests on the way into an engine, by the time at which it may schedule them, and the
    /// beginnings of batches of a tokeniser.
    entering: EventQueue<Entering>,
    /// The end of the last step of replicas that make their steps together; `None` for replicas
    /// that do not.
    step_end: Option<SimTime>,
    /// The arrivals of requests that were on the way.
    arrivals: BTreeMap<u64, SimTime>,
}

struct Entering {
    replica: usize,
    /// `None` where the replica's tokeniser begins a batch.
    request: Option<Request>,
}

/// The tokeniser of one replica.
#[derive(Default)]
struct Tokeniser {
    /// When it is free.
    free: SimTime,
    /// Requests that wait for a batch, where it takes several together.
    waiting: VecDeque<Request>,
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
        "workload: the requests come or are answered after the {} days that simulated time has: ask for \
         fewer of them, or for a higher rate",
        SimTime::MAX_DAYS
    )]
    ClockEnds,
}

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
    Fleet::new(replicas, observers, None).serve(source, router, controller)
}

/// The same on replicas that make their steps together, since they share the experts of each layer:
/// a step of all begins when the longest step of any of them has ended, also for those that had
/// nothing to do.
///
/// # Errors
/// As [`serve_fleet`].
///
/// # Panics
/// As [`serve_fleet`].
pub fn serve_in_step<P: StepPrices, W: EngineObserver>(
    source: &mut impl RequestSource,
    replicas: &mut [Replica<P>],
    router: &mut Router,
    controller: &mut impl FleetController<P>,
    observers: &mut [W],
) -> Result<(), ServeError> {
    Fleet::new(replicas, observers, Some(SimTime::ZERO)).serve(source, router, controller)
}

impl<'a, P: StepPrices, W: EngineObserver> Fleet<'a, P, W> {
    fn new(replicas: &'a mut [Replica<P>], observers: &'a mut [W], step_end: Option<SimTime>) -> Self {
        assert!(!replicas.is_empty() && replicas.len() == observers.len(), "an observer for each replica");
        Self {
            unanswered: vec![0; replicas.len()],
            tokenisers: replicas.iter().map(|_| Tokeniser::default()).collect(),
            replicas,
            observers,
            answers: EventQueue::new(),
            entering: EventQueue::new(),
            arrivals: BTreeMap::new(),
            step_end,
        }
    }

    fn serve(
        mut self,
        source: &mut impl RequestSource,
        router: &mut Router,
        controller: &mut impl FleetController<P>,
    ) -> Result<(), ServeError> {
        let fleet = &mut self;
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
                    let (at, Entering { replica, request }) = fleet.entering.pop().expect("it was seen");
                    match request {
                        Some(request) => fleet.enter(replica, request, source),
                        None => fleet.tokenise(replica, at),
                    }
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

    /// Does all work until `until`. With `together` no replica runs ahead of another replica's
    /// answer.
    fn advance(&mut self, until: SimTime, together: bool) -> Result<(), ServeError> {
        if let Some(step_end) = self.step_end {
            return self.advance_in_step(step_end, until);
        }
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
            self.advance_one(index, limit)?;
        }
    }

    /// Lets a replica work until `limit`, and notes what it has answered.
    fn advance_one(&mut self, index: usize, limit: SimTime) -> Result<(), ServeError> {
        let replica = &mut self.replicas[index];
        replica.advance(limit, &mut self.observers[index])?;
        for served in replica.served() {
            if served.last_token == SimTime::MAX {
                return Err(ServeError::ClockEnds);
            }
            self.answers.schedule(served.last_token, index, Answer { replica: index, served });
        }
        Ok(())
    }

    /// Makes the common steps that begin before `until`, or before the first answer.
    fn advance_in_step(&mut self, mut step_end: SimTime, until: SimTime) -> Result<(), ServeError> {
        loop {
            let until = self.answers.next_time().map_or(until, |at| at.min(until));
            let arrived = self.replicas.iter().filter(|replica| replica.has_work()).map(Replica::now).min();
            let Some(begin) = arrived.map(|now| now.max(step_end)).filter(|&begin| begin < until) else {
                self.step_end = Some(step_end);
                return Ok(());
            };
            for index in 0..self.replicas.len() {
                let replica = &mut self.replicas[index];
                if replica.has_work() && replica.now() <= begin {
                    replica.wait_until(begin);
                    self.advance_one(index, begin + SimTime::from_picos(1))?;
                    step_end = step_end.max(self.replicas[index].now());
                }
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
        self.arrivals.insert(request.id, request.arrival);
        let tokeniser = &mut self.tokenisers[replica];
        if front_end.batch > 1 {
            if tokeniser.waiting.is_empty() {
                let begin = (request.arrival + front_end.batch_wait).max(tokeniser.free);
                self.entering.schedule(begin, replica, Entering { replica, request: None });
            }
            return tokeniser.waiting.push_back(request);
        }
        tokeniser.free =
            request.arrival.max(tokeniser.free) + front_end.tokeniser.time(request.prompt_tokens);
        let at = tokeniser.free + front_end.per_request;
        let request = Some(Request { arrival: at, ..request });
        self.entering.schedule(at, replica, Entering { replica, request });
    }

    /// The tokeniser of a replica takes a batch of the prompts that wait.
    fn tokenise(&mut self, replica: usize, begin: SimTime) {
        let front_end = self.replicas[replica].front_end();
        let tokeniser = &mut self.tokenisers[replica];
        let count = tokeniser.waiting.len().min(front_end.batch as usize);
        let batch: Vec<Request> = tokeniser.waiting.drain(..count).collect();
        let time = |request: &Request| front_end.tokeniser.time(request.prompt_tokens);
        tokeniser.free = batch.iter().map(time).fold(begin, |end, time| end + time);
        if !tokeniser.waiting.is_empty() {
            self.entering.schedule(tokeniser.free, replica, Entering { replica, request: None });
        }
        let at = tokeniser.free + front_end.per_request;
        for request in batch {
            let request = Some(Request { arrival: at, ..request });
            self.entering.schedule(at, replica, Entering { replica, request });
        }
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
