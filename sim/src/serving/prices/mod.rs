//! The time that a step of a batch takes: priced by a plan, or by measured layer times.

mod attention_times;
pub(crate) mod batch;
mod interpolation;
mod kinks;
mod layer_tables;
mod layer_times;
pub(crate) mod plan_prices;
pub(crate) mod step_line;
pub(crate) mod task_prices;

pub use batch::{Batch, PrefillChunk, StepPrices};
pub use layer_tables::{LayerRow, LayerTables, TableText};
pub use layer_times::{LayerRanks, LayerTime, LayerTimes};
pub use plan_prices::{OperatorTime, PlanPrices};
pub use step_line::StepLine;
