//! The documents that the planner writes: the plan and the table of plans.

mod document;
mod identity;
mod placed_draft;
mod table;

pub use document::{BestRule, PLAN_VERSION, Plan, Prediction, SearchSummary};
pub use identity::{Identity, PlanOrigin};
pub use placed_draft::PlacedDraft;
pub use table::{CellPlan, NamedPlacement, NoPlan, PlanTable, SharingCost, TABLE_VERSION};
