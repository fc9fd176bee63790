//! Where requests come from, and who hears of the answers.

use super::batch::StepPrices;
use super::replica::{Pause, Replica};
use super::request::{Rejected, Request, Served};
use super::watch::Watch;
use hwprofiles::Missing;

/// Requests in the order of their arrival.
pub trait Source {
    /// The next one; `None` where there is none now. After something was served there may be one again, not earlier than
    /// that.
    fn next(&mut self) -> Option<Request>;

    /// One was answered, or refused: whoever sent it may send another.
    fn done(&mut self, _at: super::Picos) {}
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
    let mut next = source.next();
    loop {
        let until = next.as_ref().map_or(super::Picos::MAX, |request| request.arrival);
        let pause = replica.advance(until, watch)?;
        for served in replica.served() {
            source.done(served.last_token);
            watch.end(&End::Served(served));
        }
        if pause != Pause::Served {
            let Some(request) = next.take() else { return Ok(()) };
            let at = request.arrival;
            if let Err((request, reason)) = replica.submit(request) {
                source.done(at);
                watch.end(&End::Rejected(request, reason));
            }
        }
        next = next.or_else(|| source.next());
    }
}
