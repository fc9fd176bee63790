//! A step of a run as tasks on lanes, and the steps of a run.

mod batch_steps;
mod extent;
mod lowering;
mod micro_batch;
mod phase_programs;
mod phase_times;
mod run_steps;
mod task;

pub use batch_steps::prefill_chunk;
pub use extent::Extent;
pub use micro_batch::MicroBatch;
pub use phase_programs::Programs;
pub use phase_times::Times;
pub use run_steps::steps;
pub use task::{Action, Lane, LowerError, Program, Source, Task, TaskId, TrainingAction};

pub(crate) use batch_steps::{Course, prefill_chunks};
pub(crate) use lowering::ALL_BUFFERS;
pub(crate) use task::dependencies;
