//! Working memory of devices' kernels: what they need besides what they read and write.

use crate::placement::ModelShare;
use crate::program::{Action, Lane};
use crate::program::{PhasePrograms, RunExtent};
use hwprofiles::{Bytes, DType, DeviceId, DeviceKind, Elements, Machine};
use scenarios::{Model, Operator, Phase, Sublayer};
use std::collections::BTreeMap;

/// Rows of experts that are computed together even where a step has fewer: one token goes to several.
const TOGETHER: u64 = 64;
/// Bytes of an integer, and of an f32.
const WORD: u64 = 4;
/// Where a GPU's operands begin, bytes.
const ALIGN: u64 = 256;
/// Rows of a matrix that a GPU has in one panel.
const GPU_PANEL: u64 = 16;
/// Rows that a GPU always multiplies by a matrix as it is.
const FEW: u64 = 3;

/// Working memory of each device's kernels: what its largest matrix product or attention takes, f32.
///
/// A product over m rows of k inputs takes at most m · (k + 64) + members · 32 Ki values, its inputs and one tile
/// of weights for each core of the device; experts besides, for each row and at least 64, its input, what is between
/// its matrices and its output; attention, for each core, the scores of 64 tokens by 64 positions and
/// the context of the query heads that share a KV head, and the partial results of each sequence. The executor
/// allocates exactly this and checks that its kernels need no more.
///
/// On a GPU it is the same whichever operators are there, so that no plan need weigh it: for every pass, the numbers that
/// say where its rows are (six for each sequence and three for each row) and by which tokens are chosen (four for each
/// sequence); and the largest of what operators borrow:
/// - a matrix product of more rows than few: a plain copy in bf16 of as many of the matrix's rows as 128 MiB hold, and
///   what cuBLASLt may keep its sums in, each in up to sixteen parts in f32, at most 32 MiB;
/// - decode's attention: the context of each query head over each part of a sequence, and there are enough parts for
///   all of the GPU;
/// - experts: what is kept between their matrices in 16 bits, as if all of a token's experts were there, what they
///   make in place of what they read, and which token goes where.
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
            match scratch.get_mut(&device) {
                Some(_) if is_gpu(machine, device) => {}
                most => {
                    let bytes = scratch_of(machine, model, extent, program.phase, *operator, device);
                    match most {
                        Some(most) => *most = bytes.max(*most),
                        None => _ = scratch.insert(device, bytes),
                    }
                }
            }
        }
    }
    scratch
}

/// What one operator takes of it; on a GPU, which has room for any, all of it.
pub(crate) fn scratch_of(
    machine: &Machine,
    model: &Model,
    extent: &RunExtent,
    phase: Phase,
    operator: Operator,
    device: DeviceId,
) -> Bytes {
    if is_gpu(machine, device) {
        return on_gpu(&ModelShare::on_device(machine, model, device), extent);
    }
    let rows = rows_of(operator, extent, phase);
    let members = machine.device(device).cores.len() as u64;
    let values = match operator.sublayer().inputs(model) {
        Some(columns) if operator.is_matmul() => {
            let width = expert_width(model, operator);
            let network = if width > 0 { 2 * model.hidden + model.inner_numbers() * width } else { 0 };
            let rows = if width > 0 { rows.max(TOGETHER) } else { rows };
            rows * (network + columns.max(width) + 64) + members * (32 << 10)
        }
        None if operator == Operator::Attention => attention_scratch(model, members, extent.batch),
        _ => 0,
    };
    DType::F32.bytes(Elements::new(values))
}

pub(crate) fn is_gpu(machine: &Machine, device: DeviceId) -> bool {
    machine.device(device).kind == DeviceKind::Gpu
}

/// Rows that an operator computes at most.
fn rows_of(operator: Operator, extent: &RunExtent, phase: Phase) -> u64 {
    match operator.sublayer() {
        Sublayer::Head => extent.sampled(),
        _ => extent.rows(phase),
    }
}

/// What a GPU's kernels take, whichever of the model's operators are there.
fn on_gpu(shared: &ModelShare<'_>, extent: &RunExtent) -> Bytes {
    let model: &Model = &shared.share;
    let sublayers = model.sublayers();
    let operators = sublayers.iter().flat_map(|sublayer| sublayer.operators(model));
    // No phase has more rows than prefill.
    let takes =
        |operator: &Operator| borrowed(model, extent, rows_of(*operator, extent, Phase::Prefill), *operator);
    let most = operators.map(takes).max().unwrap_or(0);
    Bytes::new((pass_numbers(extent) * WORD).next_multiple_of(ALIGN) + most) * shared.ranks
}

/// Bytes that a GPU's kernels borrow for `operator` of a step of `rows` rows.
fn borrowed(model: &Model, extent: &RunExtent, rows: u64, operator: Operator) -> u64 {
    let width = network_width(model, operator);
    if width > 0 {
        let made = made_by_experts(model, operator);
        let values = rows * (model.inner_numbers() * width).max(made + width);
        return 2 * values + routing(model, rows, operator) * WORD;
    }
    match operator.sublayer().matrix(model) {
        Some((outputs, inputs)) if operator.is_matmul() && rows > FEW => {
            let row = 2 * inputs;
            let workspace = (WORD * rows * outputs * inputs.div_ceil(256).min(16)).min(32 << 20);
            let copy = (outputs.next_multiple_of(GPU_PANEL) * row).min((128 << 20).max(GPU_PANEL * row));
            workspace.next_multiple_of(ALIGN) + copy
        }
        None if operator == Operator::Attention => {
            let (kv_heads, width) = match model.latent {
                Some(latent) => (1, latent.kv_rank),
                None => (model.kv_heads, model.head_dim),
            };
            let batch = extent.batch;
            let parts = (batch * extent.context.div_ceil(128)).min(512 / kv_heads + 1 + batch);
            parts * model.heads * (width + 2) * WORD
        }
        _ => 0,
    }
}

/// Integers and floats that tell a GPU's kernels of a pass.
fn pass_numbers(extent: &RunExtent) -> u64 {
    (6 + 4) * extent.batch + 3 * extent.rows(Phase::Prefill)
}

/// Integers that say which token goes to which expert: for each pair of them, and of tiles of 64 pairs.
fn routing(model: &Model, rows: u64, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::Experts, Some(experts)) => {
            let pairs = rows * experts.per_token;
            2 * pairs + (pairs / 64 + pairs.min(experts.count)) * 65
        }
        _ => 0,
    }
}

/// Neurons of a network that one operator computes as a whole, for each token.
fn network_width(model: &Model, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::SharedExpert, Some(experts)) => experts.shared,
        (Operator::Experts, Some(experts)) => experts.per_token * experts.intermediate,
        _ => 0,
    }
}

/// What a token's experts make of it before it is added up.
fn made_by_experts(model: &Model, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::Experts, Some(experts)) => experts.per_token * model.hidden,
        _ => 0,
    }
}

/// Neurons of one expert; 0 for other operators. A CPU computes its experts one after the other, each for the
/// tokens that go to it, which are all of them at most.
fn expert_width(model: &Model, operator: Operator) -> u64 {
    match (operator, &model.experts) {
        (Operator::SharedExpert, Some(experts)) => experts.shared,
        (Operator::Experts, Some(experts)) => experts.intermediate,
        _ => 0,
    }
}

/// Values for scores and contexts. With latent attention all heads share the one KV head of decode; where few heads share
/// one, a member takes more tokens at once.
fn attention_scratch(model: &Model, members: u64, batch: u64) -> u64 {
    let (group, width) = match model.latent {
        Some(latent) => (model.heads, latent.kv_rank),
        None => ((model.heads / model.kv_heads).max(4), model.head_dim),
    };
    members * group * (width + 64) * 64 + batch * model.heads * (width + 2).next_multiple_of(16)
}
