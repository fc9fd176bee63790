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
    let pricing = scenario.pricing();
    let step = TrainingStep::new(pricing, training).map_err(planner_error)?;
    let trace = sim::train(pricing, training, &step);
    let memory = MemoryUse::of(pricing.machine, &step.memory, |_| None);
    let weights = pricing.formats.weights;
    let rates = TrainingRates::of(&trace, training, pricing.machine, weights, memory);
    Ok((trace, rates))
}
