//! Sessions that generate text, and services that answer requests as they come.

mod hidden_states;
pub(crate) mod request;
#[cfg(test)]
mod schedules;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod speculative;
