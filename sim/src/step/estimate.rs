//! The times of a run, without simulating steps that repeat.

use crate::step::batch_run::sampling_time;
use crate::step::priced_steps::PricedSteps;
use hwprofiles::Seconds;
use planner::{CostModel, PhasePlacement, PhaseTimes, Placement, PlannerError, Scorer, Sketch, add_times};
use rustc_hash::FxHashMap;
use scenarios::{Phase, Workload};
use std::sync::{Mutex, PoisonError};

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
    Estimator::new(cost_model, *workload).times(placement, chunk)
}

/// [`estimate`] for many placements: what a phase takes is simulated once for all placements that
/// are the same to it.
pub fn scorer(cost_model: CostModel<'_>, workload: Workload) -> Box<Scorer<'_>> {
    let estimator = Estimator::new(cost_model, workload);
    Box::new(move |placement, chunk| estimator.times(placement, chunk))
}

/// The estimates of one cost model and workload.
struct Estimator<'a> {
    cost_model: CostModel<'a>,
    workload: Workload,
    /// The time of a phase, by its placement and the chunk of its steps.
    known: Mutex<FxHashMap<(PhasePlacement, u64), Seconds>>,
    /// The simulators that are not at work.
    idle: Mutex<Vec<PricedSteps<'a>>>,
}

impl<'a> Estimator<'a> {
    fn new(cost_model: CostModel<'a>, workload: Workload) -> Self {
        Self { cost_model, workload, known: Mutex::default(), idle: Mutex::default() }
    }

    fn times(&self, placement: &Placement, chunk: u64) -> Result<PhaseTimes, PlannerError> {
        // The steps of decode do not depend on the chunk.
        let of = |phase, chunk| self.phase_time(placement.in_phase(phase), chunk);
        let (prefill, decode) =
            rayon::join(|| of(Phase::Prefill, chunk), || of(Phase::Decode, self.workload.prompt_tokens));
        Ok(PhaseTimes { ttft: prefill?, tpot: (self.workload.decode_steps() > 0).then_some(decode?) })
    }

    /// The time of the prompt, or of one step of decode in the mean.
    fn phase_time(&self, placement: PhasePlacement, chunk: u64) -> Result<Seconds, PlannerError> {
        let key = (placement, chunk);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&time) = known().get(&key) {
            return Ok(time);
        }
        let time = self.simulated(&key.0, chunk)?;
        known().insert(key, time);
        Ok(time)
    }

    fn simulated(&self, placement: &PhasePlacement, chunk: u64) -> Result<Seconds, PlannerError> {
        let phase = placement.phase;
        let (full, short): (Vec<_>, Vec<_>) = planner::steps(&self.workload, chunk)
            .into_iter()
            .filter(|step| step.phase == phase)
            .partition(|step| phase == Phase::Decode || step.new_tokens == chunk);
        // Sampling follows the last step of the prompt, and every step of decode.
        let Some(last) = full.iter().chain(&short).last() else { return Ok(Seconds::ZERO) };
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let known = idle().pop();
        let mut simulator = known.unwrap_or_else(|| PricedSteps::new(self.cost_model));
        let sketch = Sketch::new(&self.cost_model, placement)?.map(|program| simulator.keyed(program));
        // The duration, and how long each device is at work where steps overlap.
        let mut all = Vec::new();
        for part in [&full, &short] {
            add_times(&mut all, &sketch.sum(part, &mut simulator)?, 1.0);
        }
        let mut seconds = all[0];
        if let Some(overlap) = &sketch.program().overlap {
            add_times(&mut all, &sketch.sum(&[*last], &mut simulator)?, -1.0);
            seconds -= overlap.saved(all[0], &all[1..]);
        }
        let steps = Seconds::new(seconds);
        idle().push(simulator);
        let sampled = sampling_time(&self.cost_model, &sketch.program().program, last);
        Ok(if phase == Phase::Prefill { steps + sampled } else { steps / full.len() as f64 + sampled })
    }
}
