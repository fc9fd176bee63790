//! Fitting: least squares with priors, smoothing over measured points, tables between nodes.

pub(crate) mod kriging;
pub(crate) mod lattice;
pub(crate) mod least_squares;
mod missing_fact;
pub(crate) mod parameter;
pub(crate) mod reading;

pub use missing_fact::MissingFact;
