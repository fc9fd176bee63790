//! Plans for many batches and prompt lengths whose weights stay in the same memories.

mod cell;
mod plan_grid;
mod weight_residency;

pub use cell::{GridCell, GridScorer};
pub use plan_grid::plan_grid;
