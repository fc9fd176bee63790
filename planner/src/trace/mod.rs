//! The record of a run, and its file.

mod file;
mod schema;

pub use file::TraceError;
pub use schema::{Event, Recorder, StepSpan, Trace};
