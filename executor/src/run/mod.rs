//! Lanes at work: passes one after the other, and the trace of what happened.

pub(crate) mod engine;
mod gpu_lane;
pub(crate) mod lane;
mod lane_sync;
pub(crate) mod log;
pub(crate) mod modelled;
#[cfg(test)]
pub(crate) mod schedules;
pub(crate) mod shared;
