//! Fitting: least squares with priors, smoothing over measured points, tables between nodes.

pub(crate) mod band;
pub(crate) mod kriging;
pub(crate) mod lattice;
mod missing_fact;
pub(crate) mod parameter;
pub(crate) mod reading;

pub use missing_fact::MissingFact;
