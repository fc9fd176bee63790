//! From a question to a plan and its simulated run: what names stand for, plans, grids of plans,
//! training steps; single operators in bulk, and a GPU's rates fitted to measured ones.

mod cached_catalog;
mod engine_plan;
mod exported_plan;
mod format_trial;
mod gpu_fit;
mod grid;
mod layer_points;
mod lookup;
mod operator_prediction;
mod plan_numbers;
mod prepared;
mod resolved_plan;
mod roofline;
mod row_devices;
mod training;

pub(crate) use cached_catalog::CachedCatalog;
pub use exported_plan::ExportedPlan;
pub use format_trial::FormatTrial;
pub use gpu_fit::{FittedGpu, GpuFitOptions, fit_gpus};
pub use grid::plan_grid;
pub(crate) use grid::read_grid;
pub use lookup::{described, machine, machine_library, model, parse_scenario, read_scenario, this_host_file};
pub use operator_prediction::predict_rows;
pub use plan_numbers::plan_numbers;
#[cfg(feature = "run")]
pub(crate) use prepared::FollowedRule;
pub(crate) use prepared::planner_error;
pub use prepared::{PreparedScenario, plan};
pub use resolved_plan::{ResolvedPlan, simulate};
pub use row_devices::PredictionOptions;
pub use training::train;
