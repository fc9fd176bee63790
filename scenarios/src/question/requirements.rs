//! What a plan has to do and to keep.

use crate::load::workload::Workload;
use crate::question::costs::Costs;
use crate::question::objective::{Objective, Slo};
use serde::Serialize;

/// The part of a question that stays the same for every machine, model and number format.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Requirements {
    /// The static batch that a plan is made for.
    pub workload: Workload,
    /// What is minimised or maximised.
    pub objective: Objective,
    /// Limits that a plan must keep; the default has none.
    pub slo: Slo,
    /// What the machine and its electricity cost; the default leaves both open.
    pub costs: Costs,
}

impl From<Workload> for Requirements {
    /// The lowest latency for `workload`, without limits.
    fn from(workload: Workload) -> Self {
        Self { workload, objective: Objective::default(), slo: Slo::default(), costs: Costs::default() }
    }
}
