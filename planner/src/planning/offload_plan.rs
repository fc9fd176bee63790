//! The best options of llama.cpp and of engines that place tensors as it does.
//!
//! The search is over what people set: layers of the GPU, layers whose experts or FFN stay with the
//! host, from the front (`--n-cpu-moe`) or from the back (`-ot`), tokens of a step, and whether the
//! GPU fetches the host's weights for large products. So the export of the plan is the plan.

use crate::cost::footprint;
use crate::error::PlannerError;
use crate::memory::overfilled;
use crate::placement::Placement;
use crate::plan::Plan;
use crate::planning::infeasible::infeasible;
use crate::planning::problem::{Problem, ScoredPlacement, better};
use crate::planning::scorer::Scorer;
use crate::program::RunExtent;
use crate::rules::{Offload, layer_pattern};
use crate::search::Goal;
use rayon::prelude::*;
use scenarios::{CpuMoe, OffloadOptions, TensorOverride};
use std::collections::BTreeMap;
use std::ops::Range;

/// Tokens of a step that are tried.
const MICRO_BATCHES: [u64; 4] = [512, 1024, 2048, 4096];
/// Numbers of layers that are tried beside the one that fills the GPU.
const BESIDE: usize = 3;

/// What the numbers of layers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Whole layers of the GPU.
    Layers,
    /// All layers, but the host has the large matrices of the first ones.
    LargeFromFront,
    /// The same from the last one on.
    LargeFromBack,
    /// Whole layers of the GPU, whose large matrices are all with the host.
    Small,
}

/// The plan with the best options, and these. `engine` says from how many rows on the engine
/// fetches weights.
///
/// # Errors
/// As [`crate::plan`].
pub fn plan_offload(
    problem: &Problem<'_>,
    engine: &OffloadOptions,
    scorer: &Scorer<'_>,
) -> Result<(Plan, OffloadOptions), PlannerError> {
    let Problem { requirements, .. } = *problem;
    let goal = problem.goal()?;
    let rows = requirements.workload.batch * requirements.workload.prompt_tokens;
    let sizes = MICRO_BATCHES.into_iter().filter(|&size| size == MICRO_BATCHES[0] || size / 2 < rows);
    let from = |rows| OffloadOptions { op_offload: Some(rows), experts_op_offload: None, ..engine.clone() };
    let mut thresholds = vec![engine.clone(), from(u64::MAX)];
    // Where the number of rows can be set: large prompts alone, or each step of some sequences.
    if engine.experts_op_offload.is_none() {
        let batch = requirements.workload.batch;
        thresholds.push(from(if batch < OffloadOptions::ROWS { batch } else { batch + 1 }));
    }
    let ways: Vec<(Family, OffloadOptions)> = sizes
        .flat_map(|micro_batch| {
            thresholds.iter().map(move |one| OffloadOptions { micro_batch, ..one.clone() })
        })
        .flat_map(|options| {
            let all = [Family::Layers, Family::LargeFromFront, Family::LargeFromBack, Family::Small];
            all.map(|family| (family, options.clone()))
        })
        .collect();
    let found = ways.par_iter().map(|(family, options)| best_of(problem, &goal, *family, options, scorer));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let mut best: Option<(ScoredPlacement, OffloadOptions)> = None;
    for (scored, options) in found.into_iter().flatten() {
        let before = best.as_ref().map(|(best, _)| (!goal.keeps(&best.times), best.value));
        if before.is_none_or(|before| (!goal.keeps(&scored.times), scored.value) < before) {
            best = Some((scored, options));
        }
    }
    let Some((scored, options)) = best else { return Err(infeasible(problem)?) };
    let plan = problem.finished_plan(&goal, scored, None, None, BTreeMap::new(), BTreeMap::new())?;
    Ok((plan, options))
}

/// The best number of layers of one family: the largest that fits, or a few fewer.
fn best_of(
    problem: &Problem<'_>,
    goal: &Goal,
    family: Family,
    options: &OffloadOptions,
    scorer: &Scorer<'_>,
) -> Result<Option<(ScoredPlacement, OffloadOptions)>, PlannerError> {
    let layers = problem.cost_model.model.layers as usize;
    let most = if matches!(family, Family::Layers | Family::Small) { layers + 1 } else { layers };
    let at = |held: usize| family.options(problem, options, held);
    let fits = |held: usize| at(held).and_then(|options| fitting(problem, &options)).is_some();
    let (mut held, mut too_many) = (0, most + 1);
    while too_many - held > 1 {
        let middle = held.midpoint(too_many);
        if fits(middle) { held = middle } else { too_many = middle }
    }
    let mut best = None;
    let mut with = None;
    for held in (0..BESIDE).filter_map(|less| held.checked_sub(less)) {
        let Some(options) = at(held) else { continue };
        let Some((placement, chunk)) = fitting(problem, &options) else { continue };
        let scored = match problem.scored(goal, "options of the engine", placement, chunk, scorer) {
            Err(PlannerError::Lower(_)) => continue,
            scored => scored?,
        };
        let value = scored.value;
        best = better(goal, best, scored);
        if best.as_ref().is_some_and(|best: &ScoredPlacement| best.value == value) {
            with = Some(options);
        }
    }
    Ok(best.zip(with))
}

/// The placement of `options` with its prefill chunk, if they are possible and it fits.
fn fitting(problem: &Problem<'_>, options: &OffloadOptions) -> Option<(Placement, u64)> {
    let Problem { cost_model, requirements, .. } = *problem;
    let offload = Offload::new(cost_model.machine, cost_model.model, options).ok()?;
    let (placement, chunk) =
        (offload.placement(&requirements.workload), offload.chunk(&requirements.workload));
    let extent = RunExtent::from_workload(&requirements.workload, chunk);
    let used = footprint(cost_model, &extent, &placement).ok()?;
    overfilled(cost_model.machine, &used).is_none().then_some((placement, chunk))
}

impl Family {
    /// The options with which the GPU has `held` layers of this family. `None` if the model has no
    /// such matrices.
    fn options(self, problem: &Problem<'_>, base: &OffloadOptions, held: usize) -> Option<OffloadOptions> {
        let model = problem.cost_model.model;
        let (layers, of_experts) = (model.layers as usize, model.experts.is_some());
        let host = layers - held.min(layers);
        let with = |gpu_layers, cpu_moe, override_tensor| OffloadOptions {
            gpu_layers: Some(gpu_layers),
            cpu_moe,
            override_tensor,
            ..base.clone()
        };
        let large = |numbers: Range<usize>| -> Vec<TensorOverride> {
            let tensors = if of_experts { "ffn_(gate|up|down|gate_up)_exps" } else { "ffn_(gate|up|down)" };
            if numbers.is_empty() {
                return vec![];
            }
            let numbers = layer_pattern(&numbers.collect::<Vec<_>>());
            let pattern = format!(r"blk\.{numbers}\.{tensors}\.");
            vec![TensorOverride { pattern, buffer: "CPU".to_owned() }]
        };
        let all = model.layers + 1;
        Some(match self {
            Family::Layers => with(held as u64, CpuMoe::None, vec![]),
            Family::LargeFromFront if of_experts => with(all, CpuMoe::First(host as u64), vec![]),
            Family::LargeFromFront => with(all, CpuMoe::None, large(0..host)),
            Family::LargeFromBack => with(all, CpuMoe::None, large(layers - host..layers)),
            Family::Small if of_experts => with(held as u64, CpuMoe::All, vec![]),
            Family::Small => return None,
        })
    }
}
