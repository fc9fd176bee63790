//! Requests that come and go: engines that answer them on a machine that may change, and what the
//! day comes to.

mod day;
mod day_text;
mod engine_day;
mod engine_sizing;
mod engines;
mod lockstep;
mod measures;
mod placement;
mod prefill_pool;
mod rebalance;
mod replay;
mod replay_text;
mod request_feed;
mod step_difference;
mod tables;
mod time_window;

pub(crate) use day::serve_day_on;
pub use day::{ServedDay, serve_day};
pub use engine_sizing::KvResidency;
pub use lockstep::LockstepRange;
pub(crate) use measures::measures;
pub(crate) use placement::ServingPlacement;
pub use rebalance::RebalancedDay;
pub use replay::{LatencyErrors, LatencySummary, Replay, ReplayOptions, replay};
#[cfg(feature = "run")]
pub(crate) use request_feed::RequestFeed;
pub use step_difference::{LayerDifference, StepDifference};
pub use tables::DayTables;
#[cfg(feature = "run")]
pub(crate) use tables::write_requests;
pub use time_window::TimeWindow;
