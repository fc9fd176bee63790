//! The search for placements: an integer program over patterns of layers, solved by column
//! generation and branch and bound.

mod branch_and_bound;
mod column_pool;
mod criterion;
mod deal_out;
mod dual_prices;
mod goal;
mod integer_program;
mod layer_class;
mod local_search;
mod measure;
mod pattern;
mod pattern_program;
mod priced_problem;
mod search_space;

#[cfg(test)]
pub(crate) mod laws;

pub use criterion::{Criterion, UnknownCriterion};

pub(crate) use column_pool::Restriction;
pub(crate) use deal_out::MARGINS;
pub(crate) use goal::{DeviceWork, Goal, device_work};
pub(crate) use layer_class::LayerClass;
pub(crate) use measure::Measure;
pub(crate) use pattern::{ChainCache, Pattern, Patterns, sublayer_costs};
pub(crate) use pattern_program::{PatternProgram, PatternSolution, SearchBudget, SolveResult};
pub(crate) use priced_problem::PricedProblem;
pub(crate) use search_space::SearchSpace;

#[cfg(test)]
pub(crate) use pattern::PatternGroup;
