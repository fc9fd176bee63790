//! The record of a run, simulated or measured, and its file.

mod file;
mod schema;

pub use file::TraceFileError;
pub use schema::{Recorder, StepSpan, Trace, TraceEvent};
