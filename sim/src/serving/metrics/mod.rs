//! Metrics of a serving day: latencies, goodput, use and cost of the machine, a timeline.

pub(crate) mod account;
mod latency;
pub(crate) mod meter;
mod polynomial_sums;
mod series;
pub(crate) mod summary;
mod timeline;

pub use account::{Account, EngineCount};
pub use latency::LatencyStats;
pub use meter::{ResourceMeter, ResourceUse};
pub use series::{Series, SeriesBucket};
pub use summary::{RequestCounts, Summary, SummaryCollector};
pub use timeline::{ServingTimeline, TimelineTooLong};
