//! Connections, routes and what they count.

pub(crate) mod answer_body;
pub(crate) mod app;
pub(crate) mod listener;
pub(crate) mod page;
#[cfg(test)]
mod schedules;
pub(crate) mod service_metrics;
