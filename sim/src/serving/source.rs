//! Where requests come from, and who hears of the answers.

use super::batch::StepPrices;
use super::fleet::serve_fleet;
use super::replica::Replica;
use super::request::{Rejected, Request, Served};
use super::router::Router;
use super::watch::Watch;
use hwprofiles::Missing;
use scenarios::Routing;
use std::slice;

/// Requests in the order of their arrival.
pub trait Source {
    /// The next one; `None` where there is none now. After something was served there may be one again, not earlier than
    /// that.
    fn next(&mut self) -> Option<Request>;

    /// `held` was taken and not sent yet: in its place comes who comes sooner since somebody was answered, if anybody.
    fn sooner(&mut self, _held: &mut Request) {}

    /// One was answered, or refused: whoever sent it may send another.
    fn done(&mut self, _at: super::Picos) {}

    /// Whether what comes depends on answers.
    fn listens(&self) -> bool {
        false
    }
}

/// Requests that do not care for answers.
impl<I: Iterator<Item = Request>> Source for I {
    fn next(&mut self) -> Option<Request> {
        Iterator::next(self)
    }
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// It was answered.
    Served(Served),
    /// It was not taken.
    Rejected(Request, Rejected),
}

/// Serves all of `source` on `replica`, and tells `watch` what became of each request, in the order of the ends.
///
/// # Errors
/// A rate that was not measured.
pub fn serve<P: StepPrices>(
    source: &mut impl Source,
    replica: &mut Replica<P>,
    watch: &mut impl Watch,
) -> Result<(), Missing> {
    let mut router = Router::new(Routing::RoundRobin, 0);
    serve_fleet(source, slice::from_mut(replica), &mut router, &mut (), slice::from_mut(watch))
}
