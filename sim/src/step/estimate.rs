//! The times of a run, without simulating steps that repeat.

use crate::step::batch_run::sampling_time;
use crate::step::simulator::Simulator;
use hwprofiles::{MissingRate, Seconds};
use planner::{CostModel, PhaseTimes, Placement, PlannerError, Program, Sketch, StepProbe};
use scenarios::{Phase, Step, Workload};

impl StepProbe for Simulator<'_> {
    type Error = MissingRate;

    fn step(&mut self, program: &Program, step: &Step) -> Result<Vec<f64>, MissingRate> {
        Ok(vec![Simulator::step(self, program, step)?.seconds().get()])
    }

    fn difference(&mut self, program: &Program, steps: [&Step; 2]) -> Result<Option<f64>, MissingRate> {
        Ok(Some(self.time_difference(program, steps)?.get()))
    }
}

/// The times of `workload` with `placement`, with prefill in chunks of `chunk` tokens per sequence.
/// They agree with [`crate::BatchRun::times`] to a fraction of a per cent and take a fraction of
/// the time (see [`Sketch`]).
///
/// # Errors
/// A rate that was not measured; bytes that must move without a link.
pub fn estimate(
    cost_model: CostModel<'_>,
    placement: &Placement,
    workload: &Workload,
    chunk: u64,
) -> Result<PhaseTimes, PlannerError> {
    let steps = planner::steps(workload, chunk);
    let (prefill, decode): (Vec<_>, Vec<_>) = steps.into_iter().partition(|s| s.phase == Phase::Prefill);
    let (full, short): (Vec<_>, Vec<_>) = prefill.into_iter().partition(|s| s.new_tokens == chunk);
    // The time of the steps, and of sampling after the last one.
    let sum = |phase: Phase, parts: &[&[Step]]| -> Result<[Seconds; 2], PlannerError> {
        let Some(last) = parts.iter().copied().flatten().last() else { return Ok([Seconds::ZERO; 2]) };
        let mut simulator = Simulator::new(cost_model);
        let sketch = Sketch::new(&cost_model, placement, phase)?;
        let mut steps = Seconds::ZERO;
        for part in parts {
            steps += Seconds::new(sketch.sum(part, &mut simulator)?.into_iter().sum());
        }
        Ok([steps, sampling_time(&cost_model, sketch.program(), last)])
    };
    let (prefilled, decoded) =
        rayon::join(|| sum(Phase::Prefill, &[&full, &short]), || sum(Phase::Decode, &[&decode]));
    let ([prefilled, first], [decoded, sampled]) = (prefilled?, decoded?);
    let tpot = (!decode.is_empty()).then(|| decoded / decode.len() as f64 + sampled);
    Ok(PhaseTimes { ttft: prefilled + first, tpot })
}
