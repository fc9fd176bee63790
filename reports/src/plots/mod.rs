//! The plots, one per file.

pub(crate) mod cell_map;
pub(crate) mod chart;
pub(crate) mod diagonal;
pub(crate) mod errors;
pub(crate) mod legend;
pub(crate) mod memory;
pub(crate) mod placement;
pub(crate) mod scatter;
pub(crate) mod timeline;
pub(crate) mod tornado;
