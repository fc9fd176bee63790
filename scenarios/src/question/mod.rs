//! The question that a scenario asks: machine, model, formats, workload, objective and limits.

pub(crate) mod costs;
pub(crate) mod engine_choice;
pub(crate) mod engine_library;
pub(crate) mod engine_profile;
pub(crate) mod format_choice;
pub(crate) mod keys;
pub(crate) mod lookup;
pub(crate) mod objective;
pub(crate) mod placement_choice;
pub(crate) mod quality_loss;
pub(crate) mod requirements;
pub(crate) mod resolved;
pub(crate) mod scenario;
pub(crate) mod schema;
