//! Scheduling inside one engine: which sequences enter a step, and which leave it.

mod decoding_set;
mod prefix;
pub(crate) mod replica;
mod sequence;
mod step_budget;
mod waiting_queue;

pub use replica::{Pause, Replica};
