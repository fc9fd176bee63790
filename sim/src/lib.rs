//! What would happen: discrete-event simulation of a plan.
//!
//! [`Simulator`] runs one step of a [`planner::Program`], [`Run`] all steps of a static batch, as its
//! [`planner::Times`] or as the [`planner::Trace`] that the executor writes too. Everything here is pure and
//! deterministic: the same inputs give the same bytes.
#![forbid(unsafe_code)]

mod estimate;
mod events;
mod expert_loads;
mod fair;
mod largest;
mod perfetto;
mod run;
pub mod serving;
mod step;
mod time;
mod training;
mod turns;

pub use estimate::estimate;
pub use events::EventQueue;
pub use expert_loads::ExpertLoads;
pub use fair::{Draw, Flow, Sharing};
pub use largest::{Fineness, Largest, largest};
pub use perfetto::perfetto;
pub use run::{Draws, Run, sampling_time};
pub use step::{Outcome, Simulator, Span};
pub use time::SimTime;
pub use training::train;
pub use turns::Drafting;
