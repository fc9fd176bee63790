//! Explains why nothing fits: which memory is too small, by how much, and what would help.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::planning::problem::Problem;
use crate::program::{BatchSteps, PhaseTimes, prefill_chunk, prefill_chunks};
use crate::search::{Goal, PatternProgram, SearchBudget, SearchSpace};
use hwprofiles::{Bytes, DType, Seconds};
use scenarios::{Formats, Requirements, Slo, Workload};

/// Precision of the search for sizes, in bytes.
const GRAIN: u64 = 1_000_000;
/// Sizes of at least so many gigabytes are told in whole ones, as memory is bought.
const WHOLE_GIGABYTES: u64 = 16;
const GIGABYTE: u64 = 1000 * GRAIN;

/// The error of a problem for which nothing fits, even without limits.
pub(crate) fn infeasible(problem: &Problem<'_>) -> Result<PlannerError, PlannerError> {
    let Problem { cost_model, requirements: Requirements { workload, .. }, .. } = *problem;
    let goal = unlimited(problem)?;
    let space = SearchSpace::new(cost_model, &BatchSteps::new(&workload, prefill_chunk(&workload)), &goal)?;
    let machine = cost_model.machine;
    let fitting = space.fitting();
    let mut least: Option<(Bytes, usize)> = None;
    for memory in 0..machine.memories.len() {
        if let Some(needed) = needed(&fitting, memory)? {
            // The one that is short lacks the smallest share of what it has: an accelerator's
            // memory that would have to be many times larger is not what anybody can buy.
            let growth = |needed: Bytes, memory: usize| {
                needed.as_f64() / machine.memories[memory].capacity.value.as_f64()
            };
            let needs_less = |&(bytes, other): &(Bytes, usize)| growth(needed, memory) < growth(bytes, other);
            if least.as_ref().is_none_or(needs_less) {
                least = Some((needed, memory));
            }
        }
    }
    let changes = other_changes(cost_model, &workload, &goal)?;
    let or = if changes.is_empty() { String::new() } else { format!("; or {}", changes.join(", or ")) };
    Ok(match least {
        Some((needed, memory)) => PlannerError::Infeasible {
            memory: machine.memories[memory].name.clone(),
            needed,
            capacity: machine.memories[memory].capacity.value,
            change: format!("give it {}{or}", needed.to_file_text()),
        },
        None => PlannerError::NoPlacement {
            change: if changes.is_empty() {
                "a device needs a memory and links".into()
            } else {
                changes.join(", or ")
            },
        },
    })
}

/// The least capacity of `memory` at which the model fits while the other memories stay as they
/// are, rounded up to a megabyte, a large one to a gigabyte. `None` if no capacity suffices.
fn needed(fitting: &PatternProgram<'_>, memory: usize) -> Result<Option<Bytes>, PlannerError> {
    let mut problem = fitting.clone();
    let mut fits = |bytes: u64| -> Result<bool, PlannerError> {
        problem.capacity[memory] = bytes * GRAIN;
        problem.is_solvable()
    };
    // An exabyte: more than any model needs, and sums do not overflow.
    let (mut too_little, mut enough) = (0, Bytes::new(1 << 60).get() / GRAIN);
    if !fits(enough)? {
        return Ok(None);
    }
    while enough - too_little > 1 {
        let middle = enough.midpoint(too_little);
        if fits(middle)? { enough = middle } else { too_little = middle }
    }
    let bytes = enough * GRAIN;
    let grain = if bytes >= WHOLE_GIGABYTES * GIGABYTE { GIGABYTE } else { GRAIN };
    Ok(Some(Bytes::new(bytes.next_multiple_of(grain))))
}

/// Other changes that make the model fit: smaller weights in a format with measured rates on every
/// device, or fewer sequences.
fn other_changes(
    cost_model: CostModel<'_>,
    workload: &Workload,
    goal: &Goal,
) -> Result<Vec<String>, PlannerError> {
    let mut changes = Vec::new();
    let fits = |formats: &Formats, workload: &Workload| -> Result<bool, PlannerError> {
        let cost_model = CostModel { formats, ..cost_model };
        let space = SearchSpace::new(cost_model, &BatchSteps::new(workload, prefill_chunk(workload)), goal)?;
        space.fitting().is_solvable()
    };
    let rated = |dtype: DType| cost_model.machine.devices.iter().all(|device| device.multiplies(dtype));
    let bytes = |dtype: DType| dtype.matrix_bytes(1, cost_model.model.hidden);
    let own = cost_model.formats.weights;
    for dtype in [DType::Bf16, DType::Int8, DType::Int4] {
        // Matrices in a smaller format keep it.
        let weights = own.map(|before| if bytes(dtype) < bytes(before) { dtype } else { before });
        if weights != own && rated(dtype) && fits(&Formats { weights, ..*cost_model.formats }, workload)? {
            changes.push(format!("weights in {weights}"));
            break;
        }
    }
    let (mut fitting, mut too_many) = (0, workload.batch);
    while too_many - fitting > 1 {
        let batch = fitting.midpoint(too_many);
        let fewer = Workload { batch, ..*workload };
        if fits(cost_model.formats, &fewer)? { fitting = batch } else { too_many = batch }
    }
    if fitting > 0 {
        changes.push(format!("a batch of {fitting}"));
    }
    Ok(changes)
}

/// The goal without limits.
fn unlimited(problem: &Problem<'_>) -> Result<Goal, PlannerError> {
    Ok(problem.goal()?.with_limits(Slo::default()))
}

/// The error of a problem whose limits no placement keeps. `best` are the simulated times that came
/// closest.
pub(crate) fn too_slow(
    problem: &Problem<'_>,
    goal: &Goal,
    best: Option<&PhaseTimes>,
) -> Result<PlannerError, PlannerError> {
    let Problem { cost_model, requirements: Requirements { workload, .. }, .. } = *problem;
    let limits = [("slo.ttft", goal.slo.ttft), ("slo.tpot", goal.slo.tpot)];
    let least = |phase: usize, slo: Slo| -> Result<Option<Seconds>, PlannerError> {
        let goal = goal.for_phase(phase).with_limits(slo);
        let mut least: Option<f64> = None;
        for chunk in prefill_chunks(&workload) {
            let space = SearchSpace::new(cost_model, &BatchSteps::new(&workload, chunk), &goal)?;
            if let Some(solution) = space.solve(&goal, &space.capacity(), SearchBudget::PLAN)?.solution {
                least = Some(least.map_or(solution.value, |least| least.min(solution.value)));
            }
        }
        Ok(least.map(Seconds::new))
    };
    for (phase, (what, limit)) in limits.into_iter().enumerate() {
        let Some(limit) = limit else { continue };
        let Some(best) = least(phase, Slo::default())? else { return infeasible(problem) };
        if best > limit {
            return Ok(PlannerError::TooSlow { what, limit, best, given: "that was found" });
        }
    }
    if let (Some(ttft), Some(limit)) = (goal.slo.ttft, goal.slo.tpot)
        && let Some(best) = least(1, Slo { ttft: Some(ttft), tpot: None })?
        && best > limit
    {
        let given = "that was found where slo.ttft is kept";
        return Ok(PlannerError::TooSlow { what: "slo.tpot", limit, best, given });
    }
    // The limits can be kept without contention, but the simulated times are longer.
    let simulated = [best.map(|best| best.ttft), best.and_then(|best| best.tpot)];
    let given = "that a simulation with contention shows";
    for ((what, limit), best) in limits.into_iter().zip(simulated) {
        if let (Some(limit), Some(best)) = (limit, best)
            && best > limit
        {
            return Ok(PlannerError::TooSlow { what, limit, best, given });
        }
    }
    infeasible(problem)
}
