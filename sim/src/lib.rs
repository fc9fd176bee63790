//! What would happen: discrete-event simulation of a plan.
//!
//! [`Simulator`] runs one step of a [`planner::Program`], [`Run`] all steps of a static batch, as its
//! [`planner::Times`] or as the [`planner::Trace`] that the executor writes too. Everything here is pure and
//! deterministic: the same inputs give the same bytes.
#![forbid(unsafe_code)]

mod estimate;
mod events;
mod fair;
mod perfetto;
mod routing;
mod run;
pub mod serving;
mod step;
mod time;

pub use estimate::estimate;
pub use events::EventQueue;
pub use fair::{Draw, Flow, Sharing};
pub use perfetto::perfetto;
pub use routing::Routing;
pub use run::{Draws, Run, sampling_time};
pub use step::{Outcome, Simulator, Span};
pub use time::SimTime;
