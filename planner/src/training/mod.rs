//! Training steps with their state in host memory.

mod step;
mod task_costs;

pub use step::TrainingStep;
