//! What would happen: discrete-event simulation of a plan.
//!
//! [`Simulator`] runs one step of a [`planner::Program`]. [`BatchRun`] runs all steps of a static
//! batch and gives its [`planner::PhaseTimes`], or the same [`planner::Trace`] that the executor
//! writes. [`serving`] runs requests that come and go. Everything here is pure and deterministic:
//! the same inputs give the same bytes.
//!
//! Rooms, each using only those before it: clock, step, serving.
#![forbid(unsafe_code)]

mod clock;
pub mod serving;
mod step;

pub use clock::{EventQueue, SimTime, Tick};
pub use serving::capacity_search::{CapacityBracket, SearchPrecision, search_capacity};
pub use step::{
    BatchRun, Drafting, ExpertLoads, FairShare, Flow, MemoryDraw, RandomDraws, Simulator, StepOutcome,
    TaskSpan, estimate, perfetto, sampling_time, scorer, training_trace,
};
