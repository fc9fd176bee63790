//! One step of a program: tasks on their lanes, and what is built from simulated steps.

pub(crate) mod batch_run;
mod drafts;
mod estimate;
mod expert_loads;
mod fair_share;
pub(crate) mod perfetto;
mod priced_steps;
mod random_draws;
pub(crate) mod simulator;
mod steady_state;
mod training;

pub use batch_run::{BatchRun, sampling_time};
pub use drafts::Drafting;
pub use estimate::{estimate, scorer};
pub use expert_loads::ExpertLoads;
pub use fair_share::{FairShare, Flow, MemoryDraw};
pub use perfetto::perfetto;
pub use random_draws::RandomDraws;
pub use simulator::{Simulator, StepOutcome, TaskSpan};
pub use training::training_trace;
