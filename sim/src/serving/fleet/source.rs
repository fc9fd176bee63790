//! Sources of requests.

use crate::clock::SimTime;
use crate::serving::engine::request::Request;

/// Requests in the order of their arrival.
pub trait RequestSource {
    /// The next request, or `None` if there is none now. After an answer there may be one again,
    /// which does not arrive earlier than that answer.
    fn next(&mut self) -> Option<Request>;

    /// `held` was taken but not sent yet. Replaces it by a request that arrives sooner because of
    /// an answer since then, if there is one.
    fn replace_if_sooner(&mut self, _held: &mut Request) {}

    /// A request was answered or rejected at `at`. Its sender may send another one.
    fn done(&mut self, _at: SimTime) {}

    /// Whether requests depend on answers.
    fn depends_on_answers(&self) -> bool {
        false
    }
}

/// Requests that do not depend on answers.
impl<I: Iterator<Item = Request>> RequestSource for I {
    fn next(&mut self) -> Option<Request> {
        Iterator::next(self)
    }
}
