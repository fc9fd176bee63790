//! The time that a step of a batch takes: priced by a plan, or by measured layer times.

pub(crate) mod batch;
mod kinks;
pub(crate) mod layer_times;
pub(crate) mod plan_prices;
pub(crate) mod step_line;
pub(crate) mod task_prices;

pub use batch::{Batch, PrefillChunk, StepPrices};
pub use layer_times::{CsvTableError, LayerTimes};
pub use plan_prices::PlanPrices;
pub use step_line::StepLine;
