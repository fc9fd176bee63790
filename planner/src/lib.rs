//! Where things go: cost model, ILP, plan, explanation.
#![forbid(unsafe_code)]

mod band;
mod cost;
mod course;
mod draft;
mod error;
mod explain;
mod export;
mod followed;
mod footprint;
mod formats;
mod front;
mod goal;
mod grid;
mod grid_cell;
mod half;
mod home;
mod homed;
mod improve;
mod infeasible;
mod layer_group;
mod lowering;
mod memory;
mod menu;
mod micro_batch;
mod monitor;
mod moved;
mod outlook;
mod overlap;
mod part;
mod pattern;
mod pipelining;
mod placement;
mod plain_tasks;
mod plan;
mod plan_table;
mod planner;
mod price_list;
mod program;
pub mod published;
mod replanner;
mod residency;
mod roofline;
mod rules;
mod run_steps;
mod runs;
mod scratch;
mod search;
mod shadow;
mod sketch;
mod solve;
mod space;
mod stack;
mod table;
mod tensor_parallel;
mod trace;
mod trace_file;
mod training;
mod twins;
mod upkeep;
mod walk;
mod ways;

#[cfg(test)]
mod laws;

#[cfg(test)]
#[path = "../tests/fixture/mod.rs"]
mod fixture;

pub use band::Band;
pub use cost::{Bound, Load, Price, Pricing};
pub use course::prefill_chunk;
pub use draft::{Beside, Draft, PlacedDraft};
pub use error::PlannerError;
pub use explain::{Axis, BreakEven, Busy, Explanation, Filled, PhaseBinding, Scope, Turn, Worth, explain};
pub use export::{Engine, Export, ExportError, UnknownEngine, export};
pub use formats::{ChosenFormats, FormatScorer, Variant, plan_among};
pub use front::{Criterion, Front, FrontPoint, Taken, UnknownCriterion, front, label};
pub use grid::{Cell, GridScorer, plan_grid};
pub use layer_group::LayerGroup;
pub use memory::{
    Extent, Programs, Usage, activation_buffers, rotation_table_bytes, shares_embedding, staging_slots,
    usage, vector_holders,
};
pub use micro_batch::MicroBatch;
pub use monitor::{Drift, Monitor};
pub use moved::{Moves, moved, moving_time};
pub use part::{Part, Parts};
pub use pipelining::Pipelining;
pub use placement::{LayerPlacement, Placement, ROW_PANEL, Slice, Slices, whole};
pub use plan::{Identity, Origin, PLAN_VERSION, Plan, PlanError, Prediction, Times};
pub use plan_table::{CellPlan, NamedPlacement, NoPlan, PlanTable, Sharing, TABLE_VERSION};
pub use planner::{PLANNED, Question, Scorer, evaluate, follow, plan};
pub use program::{Action, Lane, LowerError, Program, Source, Task, TaskId};
pub use replanner::{Decision, Replanner};
pub use roofline::{Binding, Roofline};
pub use rules::{NoRule, Rule};
pub use run_steps::steps;
pub use runs::Run;
pub use scratch::scratch_bytes;
pub use sketch::{Look, Sketch};
pub use trace::{Event, Recorder, StepSpan, Trace};
pub use trace_file::TraceError;
pub use training::{TrainingAction, TrainingStep};
pub use upkeep::{cost, energy};
