//! Where things go: cost model, ILP, plan, explanation.
//!
//! Rooms, each using only those before it: placement, program, memory, error, cost, trace, plan, published, rules, training, search, planning, grid, front, replan, explain, export.
#![forbid(unsafe_code)]

mod cost;
mod error;
mod explain;
mod export;
mod front;
mod grid;
mod memory;
mod placement;
mod plan;
mod planning;
mod program;
pub mod published;
mod replan;
mod rules;
mod search;
mod trace;
mod training;

#[cfg(test)]
#[path = "../tests/fixture/mod.rs"]
mod fixture;

pub use cost::{Band, Binding, Bound, Load, Look, Price, Pricing, Roofline, Sketch, cost, energy};
pub use error::PlannerError;
pub use explain::{Axis, BreakEven, Busy, Explanation, Filled, PhaseBinding, Scope, Turn, Worth, explain};
pub use export::{Engine, Export, ExportError, UnknownEngine, export};
pub use front::{Front, FrontPoint, Taken, front, label};
pub use grid::{Cell, GridScorer, plan_grid};
pub use memory::{
    Usage, activation_buffers, rotation_table_bytes, scratch_bytes, shares_embedding, staging_slots, usage,
    vector_holders,
};
pub use placement::{
    LayerGroup, LayerPlacement, Part, Parts, Pipelining, Placement, PlanError, ROW_PANEL, Run, Slice, Slices,
    Variant, whole,
};
pub use plan::{
    CellPlan, Identity, NamedPlacement, NoPlan, Origin, PLAN_VERSION, PlacedDraft, Plan, PlanTable,
    Prediction, Sharing, TABLE_VERSION,
};
pub use planning::{
    Beside, ChosenFormats, Draft, FormatScorer, PLANNED, Question, Scorer, evaluate, follow, plan, plan_among,
};
pub use program::{
    Action, Extent, Lane, LowerError, MicroBatch, Program, Programs, Source, Task, TaskId, Times,
    TrainingAction, prefill_chunk, steps,
};
pub use replan::{Decision, Drift, Monitor, Moves, Replanner, moved, moving_time};
pub use rules::{NoRule, Rule};
pub use search::{Criterion, UnknownCriterion};
pub use trace::{Event, Recorder, StepSpan, Trace, TraceError};
pub use training::TrainingStep;
