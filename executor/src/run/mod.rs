//! Lanes at work: passes one after the other, and the trace of what happened.

pub(crate) mod engine;
mod gpu_lane;
pub(crate) mod lane;
pub(crate) mod log;
pub(crate) mod modelled;
pub(crate) mod shared;
