//! The simulation of a training step.

use crate::step::simulator::Simulator;
use hwprofiles::Machine;
use planner::{CostModel, Recorder, StepSpan, TaskId, Trace, TraceEvent, TrainingStep};
use scenarios::{Step, Training};

/// The trace of `step`, the training step of `training`.
pub fn training_trace(cost_model: CostModel<'_>, training: &Training, step: &TrainingStep) -> Trace {
    let machine: &Machine = cost_model.machine;
    let mut simulator = Simulator::new(cost_model);
    let outcome = simulator.step_priced(&step.program, &step.prices);
    let events = outcome.spans.iter().zip(&step.prices).enumerate().map(|(task, (span, price))| {
        let (start, end) = (span.start.nanos(), span.end.nanos());
        TraceEvent::from_task(machine, &step.program, TaskId(task as u32), price, 0, start, end)
    });
    let shape = Step::prefill(training.sequences, training.tokens);
    Trace {
        recorder: Recorder::Simulated,
        machine: machine.name.clone(),
        model: cost_model.model.name.clone(),
        plan: "training".to_owned(),
        steps: vec![StepSpan::new(shape, 0, outcome.duration.nanos())],
        events: events.collect(),
    }
}
