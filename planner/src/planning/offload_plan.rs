//! The best options of llama.cpp and of engines that place tensors as it does.
//!
//! The search is over what people set: layers of the GPUs and of each of them, layers whose experts
//! or FFN stay with the host, from the front (`--n-cpu-moe`) or from the back (`-ot`), tokens of a
//! step, and whether the GPU fetches the host's weights for large products. So the export of the
//! plan is the plan.

use crate::cost::{CostModel, footprint};
use crate::error::PlannerError;
use crate::memory::overfilled;
use crate::placement::Placement;
use crate::plan::Plan;
use crate::planning::infeasible::infeasible;
use crate::planning::problem::{OPTIONS, Problem, ScoredPlacement, is_better};
use crate::planning::scorer::{FormatScorer, Scorer};
use crate::planning::tensor_split::{MemoryRoom, filled_splits};
use crate::program::{PhaseTimes, RunExtent};
use crate::rules::{Offload, layer_pattern};
use crate::search::Goal;
use hwprofiles::{Bytes, Machine, Seconds};
use rayon::prelude::*;
use scenarios::{CpuMoe, OffloadOptions, TensorOverride};
use std::collections::BTreeMap;
use std::ops::Range;

/// Tokens of a step that are tried.
const MICRO_BATCHES: [u64; 4] = [512, 1024, 2048, 4096];
/// Numbers of layers that are simulated: the largest that fits, and those just below it.
const LAYER_COUNTS_TRIED: usize = 3;

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

/// A problem with its simulator.
struct SimulatedProblem<'p, 'a> {
    problem: Problem<'a>,
    scorer: Box<Scorer<'p>>,
}

/// The plan with the best options, and these. `engine` says from how many rows on the engine
/// fetches weights, and `on_gpus` is the machine where nothing is with the CPU, if the engine's own
/// times differ there.
///
/// # Errors
/// As [`crate::plan`].
pub fn plan_offload(
    problem: &Problem<'_>,
    on_gpus: &Machine,
    engine: &OffloadOptions,
    simulate: &FormatScorer<'_>,
) -> Result<(Plan, OffloadOptions), PlannerError> {
    let Problem { requirements, cost_model, .. } = *problem;
    let simulated = |machine| {
        let cost_model = CostModel { machine, ..cost_model };
        let problem = Problem { cost_model, ..*problem };
        SimulatedProblem { problem, scorer: simulate(cost_model, requirements.workload) }
    };
    let (mixed, whole) = (simulated(cost_model.machine), simulated(on_gpus));
    let of = |options: &OffloadOptions| match options.is_whole_on_gpus(cost_model.model) {
        true => &whole,
        false => &mixed,
    };
    let goal = problem.goal()?;
    let found = ways(problem, engine);
    let found = found.par_iter().map(|(family, options)| best_of(problem, &goal, *family, options, &of));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let missed = missed_limit(&goal, &found);
    let mut best: Option<(ScoredPlacement, OffloadOptions)> = None;
    for (scored, options) in found.into_iter().flatten() {
        if best.as_ref().is_none_or(|(best, _)| is_better(&goal, best, &scored)) {
            best = Some((scored, options));
        }
    }
    let Some((scored, options)) = best else { return Err(infeasible(problem)?) };
    if let Some(missed) = missed {
        return Err(missed);
    }
    let problem = of(&options).problem;
    let plan = problem.finished_plan(&goal, scored, None, None, BTreeMap::new(), BTreeMap::new())?;
    Ok((plan, options))
}

/// The error for the limit that is missed: TTFT where no candidate keeps it, else TPOT among those
/// that keep TTFT. `None` where some candidate keeps both.
fn missed_limit(goal: &Goal, found: &[Option<(ScoredPlacement, OffloadOptions)>]) -> Option<PlannerError> {
    let times: Vec<PhaseTimes> = found.iter().flatten().map(|(scored, _)| scored.times).collect();
    if times.iter().any(|times| goal.keeps(times)) {
        return None;
    }
    let ttft = (goal.slo.ttft, times.iter().map(|times| times.ttft).reduce(Seconds::min));
    let in_time = times.iter().filter(|times| goal.slo.ttft.is_none_or(|limit| times.ttft <= limit));
    let tpot = (goal.slo.tpot, in_time.filter_map(|times| times.tpot).reduce(Seconds::min));
    let limits = [("slo.ttft", ttft), ("slo.tpot", tpot)].into_iter();
    let mut missed = limits.filter_map(|(what, (limit, best))| Some((what, limit?, best?)));
    let (what, limit, best) = missed.find(|(_, limit, best)| best > limit)?;
    Some(PlannerError::TooSlow { what, limit, best, given: "with the engine's options" })
}

/// Every family with the tokens of a step and the rows of fetched weights that are tried.
fn ways(problem: &Problem<'_>, engine: &OffloadOptions) -> Vec<(Family, OffloadOptions)> {
    let workload = &problem.requirements.workload;
    let rows = workload.batch * workload.prompt_tokens;
    let sizes = MICRO_BATCHES.into_iter().filter(|&size| size == MICRO_BATCHES[0] || size / 2 < rows);
    let from = |rows| OffloadOptions { op_offload: Some(rows), experts_op_offload: None, ..engine.clone() };
    let mut thresholds = vec![engine.clone(), from(u64::MAX)];
    // Where the number of rows can be set: large prompts alone, or each step of some sequences.
    if engine.experts_op_offload.is_none() {
        let batch = workload.batch;
        thresholds.push(from(if batch < OffloadOptions::ROWS { batch } else { batch + 1 }));
    }
    let options = sizes.flat_map(|micro_batch| {
        thresholds.iter().map(move |one| OffloadOptions { micro_batch, ..one.clone() })
    });
    let all = [Family::Layers, Family::LargeFromFront, Family::LargeFromBack, Family::Small];
    options.flat_map(|options| all.map(|family| (family, options.clone()))).collect()
}

/// The best number of layers of one family: the largest that fits, or a few fewer; of several GPUs
/// each with the splits that fit.
fn best_of<'s, 'p: 's, 'a: 's>(
    problem: &Problem<'_>,
    goal: &Goal,
    family: Family,
    options: &OffloadOptions,
    simulated: &dyn Fn(&OffloadOptions) -> &'s SimulatedProblem<'p, 'a>,
) -> Result<Option<(ScoredPlacement, OffloadOptions)>, PlannerError> {
    let layers = problem.cost_model.model.layers as usize;
    let most = if matches!(family, Family::Layers | Family::Small) { layers + 1 } else { layers };
    let at = |held: usize| family.options(problem, options, held).map_or(vec![], |it| splits(problem, it));
    let fits = |held: usize| at(held).iter().any(|options| fitting(problem, options).is_some());
    let (mut held, mut too_many) = (0, most + 1);
    while too_many - held > 1 {
        let middle = held.midpoint(too_many);
        if fits(middle) { held = middle } else { too_many = middle }
    }
    let mut best: Option<(ScoredPlacement, OffloadOptions)> = None;
    for options in (0..LAYER_COUNTS_TRIED).filter_map(|less| held.checked_sub(less)).flat_map(at) {
        let Some((placement, chunk)) = fitting(problem, &options) else { continue };
        let SimulatedProblem { problem, scorer } = simulated(&options);
        let name = format!("{OPTIONS} the engine");
        let scored = match problem.scored(goal, &name, placement, chunk, &**scorer) {
            Err(PlannerError::Lower(_)) => continue,
            scored => scored?,
        };
        if best.as_ref().is_none_or(|(best, _)| is_better(goal, best, &scored)) {
            best = Some((scored, options));
        }
    }
    Ok(best)
}

/// `options`, and the same with other splits between several GPUs.
fn splits(problem: &Problem<'_>, options: OffloadOptions) -> Vec<OffloadOptions> {
    let Problem { cost_model, requirements, .. } = *problem;
    let room =
        |id| MemoryRoom { capacity: cost_model.machine.memory(id).capacity.value, kept_free: Bytes::ZERO };
    let others = filled_splits(cost_model, &options, &requirements.workload, &room);
    std::iter::once(options).chain(others).collect()
}

/// The placement of `options` with its prefill chunk, if they are possible and it fits.
pub(crate) fn fitting(problem: &Problem<'_>, options: &OffloadOptions) -> Option<(Placement, u64)> {
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
