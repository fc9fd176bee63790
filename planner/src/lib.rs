//! Where things go: cost model, ILP, plan, explanation.
#![forbid(unsafe_code)]

mod cost;
mod error;
mod memory;
mod part;
mod placement;
mod plan;
mod program;
mod run_steps;
mod trace;
mod trace_file;

pub use cost::{Bound, Load, Price, Pricing};
pub use error::PlannerError;
pub use memory::{
    Extent, Programs, Usage, activation_buffers, rotation_table_bytes, scratch_bytes, shares_embedding,
    staging_slots, usage, vector_holders,
};
pub use part::{Part, Parts};
pub use placement::{LayerPlacement, Placement, ROW_PANEL, Slice, Slices, whole};
pub use plan::{Identity, LayerGroup, Origin, PLAN_VERSION, Plan, PlanError, Prediction, Times};
pub use program::{Action, Lane, LowerError, Program, STAGING_SLOTS, Source, Task, TaskId};
pub use run_steps::steps;
pub use trace::{Event, Recorder, StepSpan, Trace};
pub use trace_file::TraceError;
