//! Where things go: cost model, ILP, plan, explanation.
#![forbid(unsafe_code)]

mod cost;
mod memory;
mod placement;
mod program;
mod run_steps;
mod trace;
mod trace_file;

pub use cost::{Bound, Load, Price, Pricing};
pub use memory::{
    Extent, Programs, Usage, activation_buffers, rotation_table_bytes, scratch_bytes, shares_embedding,
    staging_slots, usage, vector_holders,
};
pub use placement::{LayerPlacement, Placement, ROW_PANEL, Slice, Slices, whole};
pub use program::{Action, Lane, LowerError, Program, STAGING_SLOTS, Source, Task, TaskId};
pub use run_steps::steps;
pub use trace::{Event, Recorder, StepSpan, Trace};
pub use trace_file::TraceError;
