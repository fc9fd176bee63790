//! Several replicas behind a router, in one time.
//!
//! What the router knows at a time, and what a closed loop sends then, depends on all answers until then and on none after
//! it. So a replica may run ahead of the others as long as nobody hears of its answers; where requests depend on answers,
//! the one that is furthest behind always works first, step after step.

use super::batch::StepPrices;
use super::picos::Picos;
use super::replica::Replica;
use super::request::{Request, Served};
use super::router::Router;
use super::source::{End, Source};
use super::watch::Watch;
use hwprofiles::Missing;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Looks after replicas while they work: at times of its own it may change what they are.
pub trait Steward<P> {
    /// When it acts next: not before it last did; [`Picos::MAX`] where never.
    fn due(&self) -> Picos {
        Picos::MAX
    }

    /// It is time. No replica has begun a step at this time or later.
    ///
    /// # Errors
    /// A rate that was not measured.
    fn act(&mut self, _replicas: &mut [Replica<P>]) -> Result<(), Missing> {
        Ok(())
    }
}

impl<P> Steward<P> for () {}

/// Replicas at work, each with its watch, who is told what became of the requests that went there.
struct Fleet<'a, P, W> {
    replicas: &'a mut [Replica<P>],
    watches: &'a mut [W],
    /// Requests of each that nobody heard the end of.
    unanswered: Vec<usize>,
    /// Answers that nobody heard of, by their time; of one time by replica, then in their order.
    answers: BinaryHeap<Reverse<(Picos, usize, u64, Served)>>,
    answered: u64,
}

/// Serves all of `source` on `replicas`. The steward acts as long as there are requests.
///
/// # Errors
/// A rate that was not measured.
///
/// # Panics
/// Where there is no replica, or not a watch for each.
pub fn serve_fleet<P: StepPrices, W: Watch>(
    source: &mut impl Source,
    replicas: &mut [Replica<P>],
    router: &mut Router,
    steward: &mut impl Steward<P>,
    watches: &mut [W],
) -> Result<(), Missing> {
    assert!(!replicas.is_empty() && replicas.len() == watches.len(), "a watch for each replica");
    let unanswered = vec![0; replicas.len()];
    let mut fleet = Fleet { replicas, watches, unanswered, answers: BinaryHeap::new(), answered: 0 };
    let mut next = source.next();
    loop {
        let sent = next.as_ref().map_or(Picos::MAX, |request| request.arrival);
        let due = steward.due();
        fleet.advance(sent.min(due), source.listens())?;
        match fleet.first_answer() {
            None if next.is_none() && !fleet.works() => return Ok(()),
            Some(at) if at <= sent.min(due) => {
                fleet.tell_first();
                source.done(at);
                if let Some(held) = &mut next {
                    source.sooner(held);
                }
            }
            _ if due < sent => steward.act(fleet.replicas)?,
            _ => {
                let request = next.take().expect("somebody comes, or there would be an answer");
                fleet.submit(request, router, source);
            }
        }
        next = next.or_else(|| source.next());
    }
}

impl<P: StepPrices, W: Watch> Fleet<'_, P, W> {
    /// All work until `until`; `together` where nobody may run ahead of another's answer.
    fn advance(&mut self, until: Picos, together: bool) -> Result<(), Missing> {
        loop {
            let until = if together { self.first_answer().map_or(until, |at| at.min(until)) } else { until };
            let mut behind = self.replicas.iter().enumerate().filter(|(_, r)| r.works() && r.now() < until);
            let index = match together {
                true => behind.min_by_key(|(_, replica)| replica.now()),
                false => behind.next(),
            };
            let Some((index, _)) = index else { return Ok(()) };
            let others = self.replicas.iter().enumerate().filter(|(other, r)| *other != index && r.works());
            let limit = match together {
                // One step at least: the others are not behind.
                true => others.map(|(_, other)| Picos(other.now().0 + 1)).min().unwrap_or(until).min(until),
                false => until,
            };
            let replica = &mut self.replicas[index];
            replica.advance(limit, &mut self.watches[index])?;
            for served in replica.served() {
                self.answers.push(Reverse((served.last_token, index, self.answered, served)));
                self.answered += 1;
            }
        }
    }

    fn works(&self) -> bool {
        self.replicas.iter().any(Replica::works)
    }

    fn first_answer(&self) -> Option<Picos> {
        self.answers.peek().map(|Reverse((at, ..))| *at)
    }

    fn tell_first(&mut self) {
        if let Some(Reverse((_, index, _, served))) = self.answers.pop() {
            self.unanswered[index] -= 1;
            self.watches[index].end(&End::Served(served));
        }
    }

    fn submit(&mut self, request: Request, router: &mut Router, source: &mut impl Source) {
        let at = request.arrival;
        let index = router.choose(&request, self.replicas, &self.unanswered);
        match self.replicas[index].submit(request) {
            Ok(()) => self.unanswered[index] += 1,
            Err((request, reason)) => {
                source.done(at);
                self.watches[index].end(&End::Rejected(request, reason));
            }
        }
    }
}
