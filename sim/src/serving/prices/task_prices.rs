//! The price of a task in a step of many sequences, and the part of the batch that it depends on.

use crate::serving::prices::batch::{Batch, PrefillChunk};
use hwprofiles::{Bytes, DeviceId, MissingRate, Seconds};
use planner::{Action, CostModel, Lane, MicroBatch, Program, Task, TaskCost};
use rustc_hash::FxHashMap;
use scenarios::{LayerKind, Mixer, Model, Operator, Phase, Step, Sublayer};
use smallvec::SmallVec;

/// What tasks have in common that cost the same in every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TaskKindKey<'p> {
    action: &'p Action,
    lane: Lane,
    micro_batch: MicroBatch,
    /// The kind of its layer; `None` for the embedding and the head.
    layer: Option<LayerKind>,
}

impl<'p> TaskKindKey<'p> {
    fn new(task: &'p Task) -> Self {
        Self { action: &task.action, lane: task.lane, micro_batch: task.micro_batch, layer: task.kind }
    }
}

/// The program's different tasks with the count of each.
///
/// They are in the order of their debug texts. Sums of floats depend on the order, and this one
/// stays the same when the lowering emits its tasks in another order.
pub(crate) fn task_kinds(program: &Program) -> Vec<(Task, f64)> {
    let mut index_of: FxHashMap<TaskKindKey<'_>, usize> = FxHashMap::default();
    let mut kinds: Vec<(TaskKindKey<'_>, &Task, f64)> = Vec::new();
    for task in &program.tasks {
        let key = TaskKindKey::new(task);
        let index = *index_of.entry(key).or_insert_with(|| {
            kinds.push((key, task, 0.0));
            kinds.len() - 1
        });
        kinds[index].2 += 1.0;
    }
    kinds.sort_by_cached_key(|(key, ..)| {
        let TaskKindKey { action, lane, micro_batch, layer } = key;
        format!("{action:?} {lane:?} {micro_batch:?} {} {layer:?}", layer.is_none())
    });
    kinds.into_iter().map(|(_, task, count)| (task.clone(), count)).collect()
}

/// The device that computes everything, if there is only one and nothing is transferred.
pub(crate) fn only_device(program: &Program) -> Option<DeviceId> {
    let Lane::Device(device) = program.tasks.first()?.lane else { return None };
    let computes_there =
        |task: &Task| task.lane == Lane::Device(device) && matches!(task.action, Action::Compute { .. });
    program.tasks.iter().all(computes_there).then_some(device)
}

/// The part of a batch that a task's work depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchDependence {
    /// Every chunk and the decodes, each with the tokens before them.
    Attention,
    /// The number of tokens that enter, and the tokens before all chunks together.
    NewAndPastTokens,
    /// The tokens before all of them together.
    PastTokens,
    /// The number of sampled sequences.
    SampledSequences,
    /// The number of tokens that enter.
    NewTokens,
}

impl BatchDependence {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// That of a task of a program of `model`.
    pub fn from_task(task: &Task, model: &Model) -> Self {
        let shape = model.shape_or_ends(task.kind);
        match task.action {
            Action::Compute { operator: Operator::Attention | Operator::IndexScores, .. } => Self::Attention,
            // What is kept, and what is added to it, differ from sequence to sequence.
            Action::FetchKv { .. } | Action::StoreKv { .. } if saturates(shape) => Self::Attention,
            Action::FetchKv { .. } => Self::PastTokens,
            Action::StoreKv { .. } => Self::NewTokens,
            // A chunk expands the latent vectors of all tokens that it attends to.
            Action::Compute { operator: Operator::QkvProj, .. } if shape.latent().is_some() => {
                Self::NewAndPastTokens
            }
            Action::Compute { operator, .. } if operator.sublayer() == Sublayer::Head => {
                Self::SampledSequences
            }
            Action::Compute { .. } => Self::NewTokens,
            _ if task.layer.is_none() => Self::SampledSequences,
            _ => Self::NewTokens,
        }
    }
}

/// Whether what attention reads in layers of this `shape`, or what they keep, is no straight line
/// in the tokens of a sequence: they have windows, an indexer, compressed keys or a state.
pub(crate) fn saturates(shape: &Model) -> bool {
    let straight = matches!(shape.mixer, Mixer::Attention | Mixer::Latent(_));
    !straight || shape.wiring.window.is_some() || shape.index.is_some()
}

/// The rows that enter `model` in `batch`: a token of each beam of a decode, and the chunks.
pub(crate) fn entering_rows(model: &Model, batch: &Batch<'_>) -> u64 {
    batch.tokens() + batch.decodes * (model.beams - 1)
}

/// The rows of `batch` from which a token is chosen.
pub(crate) fn sampled_rows(model: &Model, batch: &Batch<'_>) -> u64 {
    batch.sampled + batch.decodes * (model.beams - 1)
}

/// A decode step of `rows` sequences without a context.
pub(crate) fn rows_step(rows: u64) -> Step {
    Step { phase: Phase::Decode, batch: rows, new_tokens: 1, past_tokens: 0 }
}

/// The price of `task` in a step of `batch`.
pub(crate) fn task_price(
    cost_model: &CostModel<'_>,
    task: &Task,
    batch: &Batch<'_>,
) -> Result<TaskCost, MissingRate> {
    dependent_price(cost_model, task, BatchDependence::from_task(task, cost_model.model), batch)
}

/// The price of `task`, which has this dependence, in a step of `batch`.
pub(crate) fn dependent_price(
    cost_model: &CostModel<'_>,
    task: &Task,
    dependence: BatchDependence,
    batch: &Batch<'_>,
) -> Result<TaskCost, MissingRate> {
    let before_chunks = batch.chunks.iter().map(|chunk| chunk.past).sum::<u64>();
    let entering = entering_rows(cost_model.model, batch);
    match dependence {
        BatchDependence::Attention => attention_price(cost_model, task, batch),
        BatchDependence::PastTokens => {
            let past_tokens = batch.decode_tokens - batch.decodes + before_chunks;
            cost_model.task_cost(task, &Step { past_tokens, ..rows_step(1) })
        }
        BatchDependence::NewAndPastTokens if before_chunks == 0 => {
            cost_model.task_cost(task, &rows_step(entering))
        }
        BatchDependence::NewAndPastTokens => {
            let (new_tokens, past_tokens) = (entering, before_chunks);
            cost_model.task_cost(task, &Step { phase: Phase::Prefill, batch: 1, new_tokens, past_tokens })
        }
        BatchDependence::SampledSequences => {
            cost_model.task_cost(task, &rows_step(sampled_rows(cost_model.model, batch)))
        }
        BatchDependence::NewTokens => cost_model.task_cost(task, &rows_step(entering)),
    }
}

/// The price of attention of each chunk and of the decodes: see [`attention_time`].
fn attention_price(
    cost_model: &CostModel<'_>,
    task: &Task,
    batch: &Batch<'_>,
) -> Result<TaskCost, MissingRate> {
    let steps = attention_steps(cost_model.model, batch);
    let costs = steps.iter().map(|step| attention_cost(cost_model, task, step));
    let costs = costs.collect::<Result<SmallVec<[_; 2]>, _>>()?;
    let mut times = costs.iter().map(AttentionTime::new);
    let together = mixed_time(cost_model, task, batch);
    let time = attention_time(&steps, together, |_| Ok(times.next().expect("one for each step")))?;
    let all = costs.iter().copied().reduce(sum_launched_once).expect("there is a step");
    Ok(TaskCost { alone: time.alone, ..all })
}

/// The time of attention, and the part of it in which no bytes move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionTime {
    pub alone: Seconds,
    pub overhead: Seconds,
}

impl AttentionTime {
    pub fn new(cost: &TaskCost) -> Self {
        Self { alone: cost.alone, overhead: cost.overhead }
    }

    /// Both, launched once.
    fn launched_once(self, other: Self) -> Self {
        let longer = if other.alone > self.alone { other } else { self };
        Self { alone: self.alone + (other.alone - other.overhead), overhead: longer.overhead }
    }
}

/// The time of attention of each chunk and of the decodes, in the order of [`attention_steps`].
/// Where a fitted kernel computes chunks and decodes in one call, it is the time `together` of that
/// call: see [`mixed_time`]. Elsewhere they are computed one after the other, launched once. The
/// decodes count as sequences of the mean context, because the time of their attention depends on
/// the sum of their tokens. Where it saturates, this is exact if all contexts are on the same side
/// of the bend, and too much if they are not.
///
/// `time` is that of [`attention_cost`] in one such step.
pub(crate) fn attention_time(
    steps: &[Step],
    together: Option<Seconds>,
    mut time: impl FnMut(&Step) -> Result<AttentionTime, MissingRate>,
) -> Result<AttentionTime, MissingRate> {
    let mut all = time(&steps[0])?;
    let mut longest = all.alone;
    for step in &steps[1..] {
        let one = time(step)?;
        longest = longest.max(one.alone);
        all = all.launched_once(one);
    }
    Ok(match together {
        // One call takes no less time than any part of it.
        Some(together) => AttentionTime { alone: longest.max(all.overhead + together), ..all },
        None => all,
    })
}

/// A step for each chunk, and one for the decodes; an empty one if there are neither.
pub(crate) fn attention_steps(model: &Model, batch: &Batch<'_>) -> SmallVec<[Step; 4]> {
    let chunks = batch.chunks.iter().map(|&PrefillChunk { new: new_tokens, past: past_tokens }| Step {
        phase: Phase::Prefill,
        batch: 1,
        new_tokens,
        past_tokens,
    });
    let past_tokens = (batch.decode_tokens - batch.decodes).checked_div(batch.decodes);
    let decode = past_tokens.map(|past_tokens| decode_step(model, batch.decodes, past_tokens));
    let mut steps: SmallVec<[Step; 4]> = chunks.chain(decode).collect();
    if steps.is_empty() {
        steps.push(Step { phase: Phase::Decode, batch: 0, new_tokens: 1, past_tokens: 0 });
    }
    steps
}

/// The price of attention in `step`. The beams of a sequence run beside each other and each reads
/// the whole cache: what they have in common comes from memory once, and for each from the GPU's
/// common cache, where its bandwidth is known.
pub(crate) fn attention_cost(
    cost_model: &CostModel<'_>,
    task: &Task,
    step: &Step,
) -> Result<TaskCost, MissingRate> {
    let together = cost_model.task_cost(task, step)?;
    let Lane::Device(device) = task.lane else { return Ok(together) };
    let device = cost_model.machine.device(device);
    let searches = step.phase == Phase::Decode && step.new_tokens > 1;
    let Some(cache) = device.details.l2_bandwidth.as_ref().filter(|_| searches) else { return Ok(together) };
    let one = cost_model.task_cost(task, &Step { new_tokens: 1, ..*step })?;
    let bytes: Bytes = one.loads.iter().flatten().map(|load| load.bytes).sum();
    let read = bytes * step.new_tokens / (cache.value * device.ranks() as f64);
    Ok(TaskCost { alone: together.alone.max(one.overhead + read), ..together })
}

/// A decode step of sequences of `past_tokens` tokens. The beams of a sequence attend like new
/// tokens of one sequence: blocks that they have in common come from memory once. They are taken to
/// have all in common, which holds for the prompt.
fn decode_step(model: &Model, sequences: u64, past_tokens: u64) -> Step {
    Step { phase: Phase::Decode, batch: sequences, new_tokens: model.beams, past_tokens }
}

/// The time of one call for the chunks and the decodes of a batch, without its launch. `None`
/// where the batch has only one of them, or no such call is known.
pub(crate) fn mixed_time(cost_model: &CostModel<'_>, task: &Task, batch: &Batch<'_>) -> Option<Seconds> {
    let past_tokens = (batch.decode_tokens - batch.decodes).checked_div(batch.decodes)?;
    let decode = decode_step(cost_model.model, batch.decodes, past_tokens);
    let [new, past] = batch.equivalent_chunk().map(|tokens| tokens.round() as u64);
    let prefill = Step { phase: Phase::Prefill, batch: 1, new_tokens: new, past_tokens: past };
    // A chunk of one token is a decode.
    (new > 1).then(|| cost_model.mixed_attention_time(task, &prefill, &decode))?
}

/// The price of both, launched once.
fn sum_launched_once(one: TaskCost, other: TaskCost) -> TaskCost {
    let loads = [0, 1, 2].map(|index| match (one.loads[index], other.loads[index]) {
        (Some(a), Some(b)) => Some(planner::BandwidthUse { bytes: a.bytes + b.bytes, ..a }),
        (load, None) | (None, load) => load,
    });
    let carried = match (one.carried, other.carried) {
        (Some((link, a)), Some((_, b))) => Some((link, a + b)),
        (carried, None) | (None, carried) => carried,
    };
    let AttentionTime { alone, overhead } =
        AttentionTime::new(&one).launched_once(AttentionTime::new(&other));
    let longer = if other.alone > one.alone { other } else { one };
    TaskCost { alone, overhead, loads, carried, flop: one.flop + other.flop, ..longer }
}
