//! From a problem to its plan: simulates candidates of the search and of rules, and keeps the best.

mod draft;
mod effort;
mod forced;
mod formats;
mod improvement;
mod infeasible;
mod offload_plan;
mod one_device;
mod overlap;
mod planner;
mod problem;
mod rule_candidates;
mod scorer;
mod tensor_split;

pub use draft::{DraftModel, DraftPlan};
pub use effort::Effort;
pub use forced::{FORCED, ForcedPlacement, offloaded};
pub use formats::{BestVariant, plan_among};
pub use improvement::single_edits;
pub use offload_plan::plan_offload;
pub use planner::{evaluate, evaluate_edited, follow, plan, plan_improved};
pub use problem::{EDITED, PLANNED, Problem};
pub use scorer::{FormatScorer, Scorer};
pub use tensor_split::{MemoryRoom, filled_splits};

pub(crate) use infeasible::{infeasible, too_slow};
pub(crate) use problem::{OPTIONS, ScoredPlacement, is_better};
