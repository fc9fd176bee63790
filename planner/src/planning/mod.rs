//! From a problem to its plan: simulates candidates of the search and of rules, and keeps the best.

mod draft;
mod forced;
mod formats;
mod infeasible;
mod overlap;
mod planner;
mod problem;
mod rule_candidates;
mod scorer;

pub use draft::{DraftModel, DraftPlan};
pub use forced::{FORCED, ForcedPlacement, offloaded};
pub use formats::{ChosenFormats, plan_among};
pub use planner::{evaluate, follow, plan};
pub use problem::{PLANNED, Problem};
pub use scorer::{FormatScorer, Scorer};

pub(crate) use infeasible::{infeasible, too_slow};
