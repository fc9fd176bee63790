//! The kinds of workloads that a scenario may have.

use crate::input::error::ScenarioError;
use crate::load::serving::Serving;
use crate::load::training::Training;
use crate::load::workload::{Misfit, Workload};
use crate::model::transformer::Model;

/// A scenario's workload: exactly one of three kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadKind {
    /// A static batch.
    Batch(Workload),
    /// Requests that arrive over time.
    Serving(Serving),
    /// A training step.
    Training(Training),
}

impl WorkloadKind {
    /// The static batch, if it is one.
    pub fn batch(&self) -> Option<Workload> {
        match self {
            WorkloadKind::Batch(workload) => Some(*workload),
            WorkloadKind::Serving(_) | WorkloadKind::Training(_) => None,
        }
    }

    /// The serving workload, if it is one.
    pub fn serving(&self) -> Option<&Serving> {
        match self {
            WorkloadKind::Serving(serving) => Some(serving),
            WorkloadKind::Batch(_) | WorkloadKind::Training(_) => None,
        }
    }

    /// The training step, if it is one.
    pub fn training(&self) -> Option<Training> {
        match self {
            WorkloadKind::Training(training) => Some(*training),
            WorkloadKind::Batch(_) | WorkloadKind::Serving(_) => None,
        }
    }

    /// The static batch that plans are made for: the workload itself, or one that resembles it.
    ///
    /// # Errors
    /// A trace of requests cannot be read.
    pub(crate) fn representative_batch(&self, model: &Model) -> Result<Workload, ScenarioError> {
        match self {
            WorkloadKind::Batch(workload) => Ok(*workload),
            WorkloadKind::Serving(serving) => serving.representative_batch(model),
            WorkloadKind::Training(training) => Ok(training.representative_batch()),
        }
    }

    /// The first key under `workload` that does not fit `model`; `batch` is the representative
    /// batch.
    pub(crate) fn misfit(&self, model: &Model, batch: &Workload) -> Option<Misfit> {
        match self {
            WorkloadKind::Training(training) => training.misfit(model),
            WorkloadKind::Serving(serving) => serving.misfit(model).or_else(|| batch.misfit(model)),
            WorkloadKind::Batch(_) => batch.misfit(model),
        }
    }
}
