//! From a question to a plan and its simulated run: what names stand for, plans, grids of plans,
//! training steps.

mod format_trial;
mod grid;
mod lookup;
mod machine_cache;
mod model_cache;
mod prepared;
mod resolved_plan;
mod training;

pub use format_trial::FormatTrial;
pub use grid::plan_grid;
pub use lookup::{machine, machine_library, model, parse_scenario, read_scenario, this_host_file};
pub(crate) use machine_cache::MachineCache;
pub(crate) use model_cache::ModelCache;
#[cfg(feature = "run")]
pub(crate) use prepared::FollowedRule;
pub(crate) use prepared::planner_error;
pub use prepared::{PreparedScenario, plan};
pub use resolved_plan::{ResolvedPlan, simulate};
pub use training::train;
