//! Plots: one file for each kind, all described as drawings.

pub(crate) mod cell_map;
pub(crate) mod chart;
pub(crate) mod diagonal;
pub(crate) mod drawing;
pub(crate) mod errors;
pub(crate) mod legend;
pub(crate) mod memory;
pub(crate) mod placement;
pub(crate) mod roofline;
pub(crate) mod scatter;
pub(crate) mod timeline;
pub(crate) mod tornado;
