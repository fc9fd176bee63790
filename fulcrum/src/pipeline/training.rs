//! A training step: lowered, simulated, and what it achieves.

use super::prepared::{PreparedScenario, planner_error};
use crate::error::{Error, Result};
use planner::{Trace, TrainingStep};
use reports::{MemoryUse, TrainingRates};

/// The simulated trace and the rates of the training step of `scenario`.
///
/// # Errors
/// The scenario has no training step, allows several number formats, or the step does not fit.
pub fn train(scenario: &PreparedScenario) -> Result<(Trace, TrainingRates)> {
    let Some(training) = scenario.training() else {
        return Err(Error::input("workload.training is missing: there is no training step"));
    };
    scenario.require_one_format("a training step")?;
    let cost_model = scenario.cost_model();
    let step = TrainingStep::new(cost_model, training).map_err(planner_error)?;
    let trace = sim::training_trace(cost_model, training, &step);
    let memory = MemoryUse::from_usage(cost_model.machine, &step.memory, |_| None);
    let weights = cost_model.formats.weights;
    let rates = TrainingRates::from_trace(&trace, training, cost_model.machine, weights, memory);
    Ok((trace, rates))
}
