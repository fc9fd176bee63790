//! A judge of placements for tests.

use crate::fixture::formats;
use hwprofiles::{Machine, Seconds};
use planner::{Placement, PlannerError, Pricing, Programs, Roofline, Times, steps};
use scenarios::{Model, Phase, Workload};

/// Scores with the roofline of each step: a simulator without contention.
pub fn roofline_times(
    machine: &Machine,
    model: &Model,
    workload: &Workload,
    placement: &Placement,
    chunk: u64,
) -> Result<Times, PlannerError> {
    let formats = formats();
    let pricing = Pricing { machine, model, formats: &formats };
    let programs = Programs::lower(machine, model, placement)?;
    let (mut ttft, mut rest) = (Seconds::ZERO, Seconds::ZERO);
    for step in steps(workload, chunk) {
        let time = Roofline::of(&pricing, programs.of(step.phase), &step)?.bound().0;
        match step.phase {
            Phase::Prefill => ttft += time,
            Phase::Decode => rest += time,
        }
    }
    let decodes = workload.decode_steps();
    Ok(Times { ttft, tpot: (decodes > 0).then(|| rest / decodes as f64) })
}
