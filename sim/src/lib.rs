//! What would happen: discrete-event simulation of a plan.
#![forbid(unsafe_code)]

mod events;
mod fair;
mod step;
mod time;

pub use events::EventQueue;
pub use fair::{Draw, Flow, Sharing};
pub use step::{Outcome, Simulator, Span};
pub use time::SimTime;
