//! Sessions that generate text, and services that answer requests as they come.

pub(crate) mod request;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod speculative;
