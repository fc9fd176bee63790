//! Serving: requests that come and go, batched continuously, step after step.
//!
//! A [`Replica`] is one engine with one KV cache. It takes [`Request`]s and says when each was [`Served`]. What a step
//! takes it asks its [`StepPrices`]; what it may hold, how many run at once and who comes first is its [`Engine`].
//!
//! Between two changes of its batch, every step computes one token more of the same sequences, and what a step takes
//! is a straight line in the tokens that are attended to: those steps are an arithmetic series, advanced at once.
//! Times are whole picoseconds and lines have whole coefficients, so that the sum of the series is the sum of its
//! steps, to the last digit.

mod account;
mod arrivals;
mod batch;
mod blocks;
mod capacity;
mod decoding;
mod engine;
mod fleet;
mod layer_times;
mod line;
mod meter;
mod moments;
mod picos;
mod picture;
mod plan_prices;
mod prefix;
mod rebalance;
mod recorded_run;
mod replica;
mod request;
mod router;
mod second_level;
mod sequence;
mod series;
mod shifted;
mod source;
mod summary;
mod swap;
mod waiting;
mod watch;

pub use account::Account;
pub use arrivals::Generated;
pub use batch::{Batch, Piece, StepPrices};
pub use blocks::Blocks;
pub use capacity::{NoRoom, kv_blocks};
pub use engine::{Engine, GPU_MEMORY_UTILIZATION, Host, Policy, Reserve};
pub use fleet::{Steward, serve_fleet};
pub use layer_times::{LayerTimes, TableError};
pub use line::Line;
pub use meter::{Effort, Meter};
pub use picos::Picos;
pub use picture::{Crowded, Picture};
pub use plan_prices::PlanPrices;
pub use rebalance::{
    Alternative, Clock, Demand, Following, Forecast, Forecasts, Move, Rebalancer, Record, Staged,
};
pub use recorded_run::{RecordError, RecordedRun};
pub use replica::{Pause, Replica, Seen};
pub use request::{Rejected, Request, Served};
pub use router::Router;
pub use series::{Series, Stretch};
pub use shifted::Shifted;
pub use source::{End, Source, serve};
pub use summary::{Counts, Limits, Spread, Summary, Tally};
pub use swap::{Swap, SwapError, Transfer};
pub use watch::{Steps, Watch};
