//! Pareto fronts over two or three criteria.

mod label;
#[cfg(test)]
mod laws;
mod pareto;
mod table;
mod tradeoff;

pub use label::placement_label;
pub use pareto::{Front, FrontPoint, PointCriteria, front};
