//! The times of a run without simulating what repeats.

use crate::run::sampling_time;
use crate::step::Simulator;
use hwprofiles::{Missing, Seconds};
use planner::{Look, Placement, PlannerError, Pricing, Program, Sketch, Times};
use scenarios::{Phase, Step, Workload};

impl Look for Simulator<'_> {
    type Error = Missing;

    fn step(&mut self, program: &Program, step: &Step) -> Result<Vec<f64>, Missing> {
        Ok(vec![Simulator::step(self, program, step)?.duration.to_seconds().get()])
    }

    fn apart(&mut self, program: &Program, steps: [&Step; 2]) -> Result<f64, Missing> {
        Ok(Simulator::apart(self, program, steps)?.get())
    }
}

/// The times of `workload`, of its decode steps where a draft proposes several tokens for each, with `placement`, prefill in chunks of `chunk` tokens per sequence: those of
/// [`crate::Run::times`], to a fraction of a per cent, in a fraction of the time (see [`Sketch`]).
///
/// # Errors
/// A rate that was not measured; bytes that must move without a link.
pub fn estimate(
    pricing: Pricing<'_>,
    placement: &Placement,
    workload: &Workload,
    chunk: u64,
) -> Result<Times, PlannerError> {
    let steps = planner::steps(workload, chunk);
    let (prefill, decode): (Vec<_>, Vec<_>) = steps.into_iter().partition(|s| s.phase == Phase::Prefill);
    let (full, short): (Vec<_>, Vec<_>) = prefill.into_iter().partition(|s| s.new_tokens == chunk);
    let mut simulator = Simulator::new(pricing);
    let mut sum = |sketch: &Sketch, steps: &[Step]| -> Result<Seconds, Missing> {
        Ok(Seconds::new(sketch.sum(steps, &mut simulator)?.into_iter().sum()))
    };
    let sketch = Sketch::of(&pricing, placement, Phase::Prefill)?;
    let mut ttft = sum(&sketch, &full)? + sum(&sketch, &short)?;
    if let Some(last) = short.last().or(full.last()) {
        ttft += sampling_time(&pricing, sketch.program(), last);
    }
    let mut tpot = None;
    if let Some(last) = decode.last() {
        let sketch = Sketch::of(&pricing, placement, Phase::Decode)?;
        let mean = sum(&sketch, &decode)? / decode.len() as f64;
        tpot = Some(mean + sampling_time(&pricing, sketch.program(), last));
    }
    Ok(Times { ttft, tpot })
}
