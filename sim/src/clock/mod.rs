//! Simulated time, and the events that happen in it.

mod event_queue;
mod sim_time;

pub use event_queue::EventQueue;
pub use sim_time::{SimTime, Tick};
