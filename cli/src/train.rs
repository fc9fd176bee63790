//! A training step: lowered, simulated, and what it achieves.

use crate::exit::Outcome;
use crate::pipeline::{Question, sorted};
use planner::{Trace, TrainingStep};
use reports::{MemoryUse, TrainingRates};
use scenarios::Training;

/// The step of `training` on the machine and the model of `question`: its trace and its rates.
pub fn run(question: &Question, training: &Training) -> Outcome<(Trace, TrainingRates)> {
    let question = question.clone().in_one_format("a training step")?;
    let pricing = question.pricing();
    let step = TrainingStep::new(pricing, training).map_err(sorted)?;
    let trace = sim::train(pricing, training, &step);
    let memory = MemoryUse::of(pricing.machine, &step.memory, |_| None);
    let rates = TrainingRates::of(&trace, training, pricing.machine, pricing.formats.weights, memory);
    Ok((trace, rates))
}
