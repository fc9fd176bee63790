//! What a GPU can run.

use crate::error::ExecutorError;
use hwprofiles::{DType, DeviceKind, Machine};
use kernels::cuda::calls::{GPU_MATRICES, MOST_VALUES};
use planner::{Action, Lane, OperandSource, PhasePrograms, Task};
use scenarios::{Activation, Formats, Mixer, Model, Operator, Sublayer};

/// The most experts for which its kernels can group tokens.
const MOST_EXPERTS: u64 = kernels::cuda::calls::ExpertRouting::MOST as u64;

/// Refuses tasks for a GPU that none of our kernels runs, a second GPU, and tasks of the host that
/// read a GPU's memory in place.
pub(crate) fn check(
    machine: &Machine,
    model: &Model,
    formats: &Formats,
    programs: &PhasePrograms,
) -> Result<(), ExecutorError> {
    let mut first = None;
    for task in programs.prefill.tasks.iter().chain(&programs.decode.tasks) {
        let Lane::Device(device) = task.lane else { continue };
        if machine.device(device).kind != DeviceKind::Gpu {
            check_host(machine, task)?;
            continue;
        }
        if *first.get_or_insert(device) != device {
            let wanted = "this version runs one GPU: plan for a machine that has one";
            return Err(ExecutorError::refused("placement", &machine.device(device).name, wanted));
        }
        let shared = machine
            .devices
            .iter()
            .find(|other| other.kind != DeviceKind::Gpu && other.memory == machine.device(device).memory);
        if let Some(shared) = shared {
            let wanted = format!("a GPU's memory is its own here, and '{}' has the same", shared.name);
            return Err(ExecutorError::refused("placement", &machine.device(device).name, wanted));
        }
        if let Action::Compute { operator, .. } = &task.action {
            check_operator(model.shape_or_ends(task.kind), formats, *operator)?;
        }
    }
    Ok(())
}

/// Refuses a task of the host that reads a GPU's memory in place.
fn check_host(machine: &Machine, task: &Task) -> Result<(), ExecutorError> {
    let Action::Compute { source: OperandSource::InPlace(memory), .. } = task.action else { return Ok(()) };
    let gpu = machine.devices.iter().find(|device| device.kind == DeviceKind::Gpu && device.memory == memory);
    match gpu {
        None => Ok(()),
        Some(gpu) => {
            let wanted = format!("the host reads no memory of '{}' in place: give it a link", gpu.name);
            Err(ExecutorError::refused("placement", &machine.memory(memory).name, wanted))
        }
    }
}

/// What no kernel of a GPU computes, if `operator` is such.
fn on_host_only(model: &Model, operator: Operator) -> Option<&'static str> {
    let sublayer = operator.sublayer();
    let routed = matches!(sublayer, Sublayer::Router | Sublayer::Experts);
    let grouped = model.experts.as_ref().is_some_and(|experts| !experts.has_plain_router());
    match (sublayer, model.mixer) {
        (Sublayer::SharedExpert, _) => Some("shared experts"),
        (Sublayer::Qkv | Sublayer::Attention, Mixer::Latent(_)) => Some("latent attention"),
        (Sublayer::Attention, Mixer::Recurrent(_)) => Some("recurrences"),
        (Sublayer::FfnUp, _) if model.activation == Activation::ReluSquared => Some("squares of ReLU"),
        (Sublayer::Attention, _) if model.wiring.value_norm => Some("norms of values"),
        _ if model.wiring.layer_embedding.is_some() => Some("embeddings for each layer"),
        _ if routed && model.wiring.norms_beside => Some("experts with norms of their own"),
        (Sublayer::FfnDown, _) if model.wiring.layer_scale => Some("factors of layers"),
        (Sublayer::Attention, _) if model.wiring.output_gate => Some("gated attention"),
        (Sublayer::Attention, _) if model.wiring.norms_whole_qk => Some("norms over all heads of q and k"),
        (Sublayer::Attention, _) if model.wiring.norms_rotated_qk || model.wiring.unrotated => {
            Some("norms behind the rotation, or attention without one")
        }
        _ if routed && grouped => Some("routers with groups, corrections or factors"),
        _ => None,
    }
}

fn check_operator(model: &Model, formats: &Formats, operator: Operator) -> Result<(), ExecutorError> {
    let sublayer = operator.sublayer();
    if let Some(feature) = on_host_only(model, operator) {
        let wanted = format!("a GPU does not compute {feature} in this version: place it on the host");
        return Err(ExecutorError::refused(format!("placement.{sublayer}"), operator, wanted));
    }
    if let (Operator::Experts, Some(experts)) = (operator, &model.experts) {
        // A staging slot has the matrices one after another, and each must start at an aligned
        // address.
        let whole = model.hidden.is_multiple_of(16) && experts.intermediate.is_multiple_of(8);
        if experts.count > MOST_EXPERTS || !whole {
            let wanted = format!(
                "a GPU computes at most {MOST_EXPERTS} experts, of a multiple of 8 neurons and a hidden size of a multiple of 16"
            );
            let found = format!("{} of {} neurons in {}", experts.count, experts.intermediate, model.hidden);
            return Err(ExecutorError::refused("experts", found, wanted));
        }
    }
    let mut dtypes = formats.weights.for_sublayer(sublayer).parts().map(|(dtype, _)| dtype);
    let multiplies = operator.is_matmul() || operator == Operator::Embed;
    if let Some(dtype) = dtypes.find(|dtype| multiplies && !GPU_MATRICES.contains(dtype)) {
        let wanted = format!("a GPU computes {sublayer} of {}", GPU_MATRICES.map(DType::name).join(", "));
        return Err(ExecutorError::refused("formats.weights", dtype, wanted));
    }
    if operator == Operator::Attention {
        if formats.kv != DType::Bf16 {
            return Err(ExecutorError::refused(
                "formats.kv",
                formats.kv,
                "a GPU attends over a cache of bf16",
            ));
        }
        if !model.head_dim.is_multiple_of(2) || model.head_dim > MOST_VALUES as u64 {
            let wanted =
                format!("a GPU attends with heads of an even number of values, at most {MOST_VALUES}");
            return Err(ExecutorError::refused("head_dim", model.head_dim, wanted));
        }
    }
    Ok(())
}
