//! Plans where a model's weights and KV caches live and which devices compute its layers.
//!
//! Rooms, each using only those before it: placement, program, memory, error, cost, trace, plan,
//! published, rules, training, search, planning, grid, front, replan, explain, export,
//! engine_plan.
#![forbid(unsafe_code)]

mod cost;
mod engine_plan;
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
#[path = "../tests/suite/cases.rs"]
mod cases;
#[cfg(test)]
#[path = "../tests/suite/fixture/mod.rs"]
mod fixture;

pub use cost::{
    Band, BandwidthUse, Binding, CostBound, CostModel, Roofline, Sketch, StepOverlap, StepProbe, TaskCost,
    WORTH_SHARING, add_times, cost, energy, footprint,
};
pub use engine_plan::plan_for_engine;
pub use error::PlannerError;
pub use explain::{
    Axis, BreakEven, Brief, Busy, Explanation, MemoryFill, PhaseBinding, Scope, TurningPoint, Worth, explain,
};
pub use export::{Export, ExportError, ExportTarget, UnknownExportTarget, export};
pub use front::{Front, FrontPoint, PointCriteria, front, placement_label};
pub use grid::{GridCell, GridScorer, plan_grid};
pub use memory::{
    MemoryUsage, SequenceBytes, StagingSlot, activation_buffers, cache_bytes, rotation_table_bytes,
    scratch_bytes, sequence_bytes, shares_embedding, staging_slots, usage, vector_holders,
};
pub use placement::{
    LayerGroup, LayerPlacement, LayerRun, LayerSlices, NamedSlice, NamedSlices, PhasePlacement, Pipelining,
    Placement, PlanError, ROW_PANEL, Slice, Slices, Variant, whole_slice,
};
pub use plan::{
    BestRule, CellPlan, Identity, NamedPlacement, NoPlan, PLAN_VERSION, PlacedDraft, Plan, PlanOrigin,
    PlanTable, Prediction, SearchSummary, SharingCost, TABLE_VERSION,
};
pub use planning::{
    BestVariant, DraftModel, DraftPlan, EDITED, Effort, FORCED, ForcedPlacement, FormatScorer, MemoryRoom,
    PLANNED, Problem, Scorer, evaluate, evaluate_edited, filled_splits, follow, offloaded, plan, plan_among,
    plan_improved, plan_offload, single_edits,
};
pub use program::{
    Action, Lane, LowerError, MicroBatch, OperandSource, PhasePrograms, PhaseTimes, Program, RunExtent, Task,
    TaskCycle, TaskEdge, TaskGraph, TaskId, TaskIds, TrainingAction, prefill_chunk, rate_text, steps,
};
pub use replan::{Decision, Drift, Monitor, Moves, Replanner, moved, moved_sequences, moving_time};
pub use rules::{NoRule, Rule};
pub use search::{Criterion, UnknownCriterion};
pub use trace::{Recorder, StepSpan, Trace, TraceEvent, TraceFileError};
pub use training::TrainingStep;
