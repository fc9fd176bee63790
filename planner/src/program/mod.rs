//! The tasks of one step, and the steps of a run.

mod batch_steps;
mod extent;
mod issued_tasks;
mod lowering;
mod micro_batch;
mod per_phase;
mod phase_programs;
mod phase_times;
mod run_steps;
mod task;
mod task_graph;

pub use batch_steps::prefill_chunk;
pub use extent::RunExtent;
pub use micro_batch::MicroBatch;
pub use phase_programs::PhasePrograms;
pub use phase_times::{PhaseTimes, rate_text};
pub use run_steps::steps;
pub use task::{Action, Lane, LowerError, OperandSource, Program, Task, TaskId, TaskIds, TrainingAction};

pub use task_graph::{TaskCycle, TaskEdge, TaskGraph};

pub(crate) use batch_steps::{BatchSteps, prefill_chunks, small_prefill_chunks};
pub(crate) use lowering::ALL_BUFFERS;
pub(crate) use per_phase::PerPhase;
pub(crate) use task::dependencies;
