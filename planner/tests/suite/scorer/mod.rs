//! A scorer for tests.

use crate::fixture::formats;
use hwprofiles::{Machine, Seconds};
use planner::{CostModel, PhasePrograms, PhaseTimes, Placement, PlannerError, Roofline, Scorer, steps};
use scenarios::{Model, Phase, Workload};

/// Scores with the roofline of each step, like a simulator without contention.
pub fn roofline_times(
    machine: &Machine,
    model: &Model,
    workload: &Workload,
    placement: &Placement,
    chunk: u64,
) -> Result<PhaseTimes, PlannerError> {
    let formats = formats();
    let cost_model = CostModel { machine, model, formats: &formats };
    let programs = PhasePrograms::lower(machine, model, placement)?;
    let (mut ttft, mut rest) = (Seconds::ZERO, Seconds::ZERO);
    for step in steps(workload, chunk) {
        let time = Roofline::new(&cost_model, programs.program(step.phase), &step)?.bound().0;
        match step.phase {
            Phase::Prefill => ttft += time,
            Phase::Decode => rest += time,
        }
    }
    let decodes = workload.decode_steps();
    Ok(PhaseTimes { ttft, tpot: (decodes > 0).then(|| rest / decodes as f64) })
}

/// The same for every cost model and workload.
pub fn roofline(cost_model: CostModel<'_>, workload: Workload) -> Box<Scorer<'_>> {
    let CostModel { machine, model, .. } = cost_model;
    Box::new(move |placement, chunk| roofline_times(machine, model, &workload, placement, chunk))
}
