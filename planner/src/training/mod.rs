//! Training steps whose state is in host memory.

mod step;
mod task_costs;

pub use step::TrainingStep;
