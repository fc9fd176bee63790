//! Sweeps: the axes that a document or the command line names, and the grid that they span.

pub(crate) mod axis;
pub(crate) mod grid;
pub(crate) mod lists;
