//! Scratch memory of kernels: the bytes that they need besides their operands and results.

use crate::placement::ModelShare;
use crate::program::{Action, Lane, PhasePrograms, RunExtent};
use hwprofiles::{Bytes, DType, DeviceId, DeviceKind, Elements, Machine};
use scenarios::{Mixer, Model, Operator, Phase, Sublayer};
use std::collections::BTreeMap;

/// The experts' kernels work on at least this number of rows, because one token goes to several
/// experts.
const MIN_EXPERT_ROWS: u64 = 64;
/// Bytes of an integer, and of an f32.
const WORD: u64 = 4;
/// Alignment of a GPU's operands in bytes.
const ALIGN: u64 = 256;
/// Rows of one panel of a matrix on a GPU.
const GPU_PANEL: u64 = 16;

/// Scratch bytes of each device: the largest need of any matrix product or attention in f32.
///
/// On a CPU:
/// - A product over m rows of k inputs takes at most m · (k + 64) + cores · 32 Ki values: its
///   inputs and one tile of weights for each core.
/// - Experts take, for each of at least 64 rows, also their input, their intermediate values and
///   their output.
/// - Attention takes, for each core, the scores of 64 tokens by 64 positions and the context of the
///   query heads that share a KV head, and with a window also 64 keys and 64 values; for each
///   sequence, its partial results.
///
/// The executor allocates exactly these bytes and checks that its kernels need no more.
///
/// On a GPU the scratch size does not depend on which operators the GPU runs, so it does not
/// influence the choice of a placement. Each pass needs the integers that locate its rows (six for
/// each sequence, three for each row) and that sample tokens (four for each sequence). The
/// operators share one area with the size of the largest need:
/// - A matrix product takes a bf16 copy of as many matrix rows as 128 MiB hold, and a cuBLASLt
///   workspace for partial sums (up to sixteen parts in f32, at most 32 MiB).
/// - Attention in decode takes the context of each query head over each part of a sequence; the
///   parts are enough to occupy the whole GPU.
/// - Experts take their intermediate values in 16 bits as if all of a token's experts were on this
///   GPU, their outputs, and the assignment of tokens to experts. A shared expert takes its own,
///   and what its products take.
pub fn scratch_bytes(
    machine: &Machine,
    programs: &PhasePrograms,
    model: &Model,
    extent: &RunExtent,
) -> BTreeMap<DeviceId, Bytes> {
    let mut scratch: BTreeMap<DeviceId, Bytes> = BTreeMap::new();
    for program in programs.both() {
        for task in &program.tasks {
            let (Action::Compute { operator, .. }, Lane::Device(device)) = (&task.action, task.lane) else {
                continue;
            };
            if is_gpu(machine, device) {
                scratch.entry(device).or_insert_with(|| gpu_scratch(machine, model, extent, device));
            } else {
                let shape = model.shape_or_ends(task.kind);
                let bytes = operator_scratch(machine, shape, extent, program.phase, *operator, device);
                let most = scratch.entry(device).or_default();
                *most = bytes.max(*most);
            }
        }
    }
    scratch
}

/// Scratch bytes of one operator on a device that is no GPU.
pub(crate) fn operator_scratch(
    machine: &Machine,
    model: &Model,
    extent: &RunExtent,
    phase: Phase,
    operator: Operator,
    device: DeviceId,
) -> Bytes {
    let rows = operator_rows(operator, extent, phase);
    let members = machine.device(device).cores.len() as u64;
    let projected = model.embedding_inputs().filter(|_| operator == Operator::Embed);
    let values = match projected.or(operator.sublayer().inputs(model)) {
        Some(columns) if operator == Operator::Embed => match projected {
            Some(_) => rows * (columns + 64) + members * (32 << 10),
            None => 0,
        },
        Some(columns) if operator.is_matmul() => {
            let width = expert_width(model, operator);
            let network = if width > 0 { 2 * model.hidden + model.neuron_activations() * width } else { 0 };
            let rows = if width > 0 { rows.max(MIN_EXPERT_ROWS) } else { rows };
            // The vector that latent attention's queries are expanded from.
            let rank = model.latent().filter(|_| operator == Operator::QkvProj);
            let rank = rank.and_then(|latent| latent.q_rank).unwrap_or(0);
            // The widest input of several matrices.
            let inner = if operator == Operator::DownProj { model.intermediate } else { 0 };
            let columns = columns.max(width).max(rank).max(inner);
            rows * (network + rank + columns + 64) + members * (32 << 10)
        }
        None if operator == Operator::Attention => attention_scratch(model, members, extent.batch),
        _ => 0,
    };
    DType::F32.bytes(Elements::new(values))
}

pub(crate) fn is_gpu(machine: &Machine, device: DeviceId) -> bool {
    machine.device(device).kind == DeviceKind::Gpu
}

/// Most rows that an operator computes.
fn operator_rows(operator: Operator, extent: &RunExtent, phase: Phase) -> u64 {
    match operator.sublayer() {
        Sublayer::Head => extent.sampled(),
        _ => extent.rows(phase),
    }
}

/// Scratch bytes of a GPU's kernels for all operators of all layers of `model`.
pub(crate) fn gpu_scratch(machine: &Machine, model: &Model, extent: &RunExtent, device: DeviceId) -> Bytes {
    let shared = ModelShare::on_device(machine, model, device);
    let of_shape = |shape: &Model| {
        let sublayers = shape.sublayers();
        let operators = sublayers.iter().flat_map(|sublayer| sublayer.operators(shape));
        // No phase has more rows than prefill.
        let rows = |operator| operator_rows(operator, extent, Phase::Prefill);
        operators.map(|&operator| shared_area(shape, extent, rows(operator), operator)).max().unwrap_or(0)
    };
    let most = shared.share.shapes().iter().chain([&*shared.share]).map(of_shape).max().unwrap_or(0);
    Bytes::new((pass_words(extent) * WORD).next_multiple_of(ALIGN) + most) * shared.ranks
}

/// Scratch bytes that `operator` needs on a GPU in a step of `rows` rows.
fn shared_area(model: &Model, extent: &RunExtent, rows: u64, operator: Operator) -> u64 {
    let width = network_width(model, operator);
    if width > 0 {
        let outputs = expert_outputs(model, operator);
        let values = 2 * rows * (model.neuron_activations() * width).max(outputs + width);
        if operator == Operator::SharedExpert {
            let front = product_area(rows, (model.neuron_activations() - 1) * width, model.hidden);
            return values.next_multiple_of(ALIGN) + front.max(product_area(rows, model.hidden, width));
        }
        return values + routing_words(model, rows, operator) * WORD;
    }
    match operator.sublayer().matrix(model) {
        Some((outputs, inputs)) if operator.is_matmul() => product_area(rows, outputs, inputs),
        None if operator == Operator::Attention => {
            let (kv_heads, width) = match model.latent() {
                Some(latent) => (1, latent.kv_rank),
                None => (model.kv_heads, model.head_dim),
            };
            let batch = extent.batch;
            let parts = (batch * extent.context.div_ceil(256)).min(512 / kv_heads + 1 + batch);
            parts * model.heads * (width + 2) * WORD
        }
        _ => 0,
    }
}

/// Scratch bytes of a product of `rows` rows with a matrix.
fn product_area(rows: u64, outputs: u64, inputs: u64) -> u64 {
    let row = 2 * inputs;
    let workspace = (WORD * rows * outputs * inputs.div_ceil(256).min(16)).min(32 << 20);
    let copy = (outputs.next_multiple_of(GPU_PANEL) * row).min((128 << 20).max(GPU_PANEL * row));
    workspace.next_multiple_of(ALIGN) + copy
}

/// Number of integers and floats that describe a pass to a GPU's kernels.
fn pass_words(extent: &RunExtent) -> u64 {
    6 * extent.batch + 4 * extent.sampled() + 3 * extent.rows(Phase::Prefill)
}

/// Number of integers that assign tokens to experts: for each (token, expert) pair, and for each
/// tile of 64 pairs, or of 128 where experts have many.
fn routing_words(model: &Model, rows: u64, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::Experts, Some(experts)) => {
            let pairs = rows * experts.per_token;
            let of_tile = if pairs >= 256 * experts.count { 128 } else { 64 };
            2 * pairs + (pairs / of_tile + pairs.min(experts.count)) * (of_tile + 1)
        }
        _ => 0,
    }
}

/// Neurons for each token of a network that one operator computes as a whole.
fn network_width(model: &Model, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::SharedExpert, Some(experts)) => experts.shared,
        (Operator::Experts, Some(experts)) => experts.per_token * experts.intermediate,
        _ => 0,
    }
}

/// Values for each token that the experts write before they are added up.
fn expert_outputs(model: &Model, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::Experts, Some(experts)) => experts.per_token * model.hidden,
        (Operator::SharedExpert, Some(_)) => model.hidden,
        _ => 0,
    }
}

/// Neurons of one expert, 0 for other operators. A CPU computes its experts one after the other,
/// each for at most all tokens.
fn expert_width(model: &Model, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::SharedExpert, Some(experts)) => experts.shared,
        (Operator::Experts, Some(experts)) => experts.intermediate,
        _ => 0,
    }
}

/// Number of values for scores and contexts. A recurrence needs none. Where few heads share a KV
/// head, a core takes more tokens at once.
fn attention_scratch(model: &Model, members: u64, batch: u64) -> u64 {
    let (group, width) = match model.mixer {
        // Sixteen queries as wide as an entry of the cache, their results, and 32 entries.
        Mixer::Latent(latent) => return members * (64 * latent.kv_numbers() + 512),
        Mixer::Recurrent(_) => return 0,
        _ => ((model.heads / model.kv_heads).max(4), model.head_dim),
    };
    // A block of keys and values of a ring, or of tokens that are not in it yet.
    let gathered = model.wiring.window.map_or(0, |_| 2 * 64 * width.next_multiple_of(16));
    members * (group * (width + 64) * 64 + gathered) + batch * model.heads * (width + 2).next_multiple_of(16)
}
