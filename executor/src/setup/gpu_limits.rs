//! What a GPU can run.

use crate::error::ExecutorError;
use hwprofiles::{DType, DeviceKind, Machine};
use kernels::cuda::calls::{GPU_MATRICES, MOST_KEY_VALUES, MOST_TAPS, MOST_VALUES};
use planner::{Action, Lane, OperandSource, PhasePrograms, RunExtent, Task};
use scenarios::{Architecture, Formats, Mixer, Model, Operator, Recurrence, Sublayer};

/// The most experts for which its kernels can group tokens.
const MOST_EXPERTS: u64 = kernels::cuda::calls::ExpertRouting::MOST as u64;

/// Refuses tasks for a GPU that none of our kernels runs, a second GPU, and tasks of the host that
/// read a GPU's memory in place.
pub(crate) fn check(
    machine: &Machine,
    model: &Model,
    formats: &Formats,
    programs: &PhasePrograms,
    extent: &RunExtent,
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
            let shape = model.shape_or_ends(task.kind);
            check_operator(model, shape, formats, *operator)?;
            let recurs =
                matches!(shape.mixer, Mixer::Recurrent(_)) && operator.sublayer() == Sublayer::Attention;
            if recurs && extent.step_tokens > 1 {
                let wanted =
                    "a GPU takes no proposed tokens back out of a recurrence: decode without a draft";
                return Err(ExecutorError::refused("extent.step_tokens", extent.step_tokens, wanted));
            }
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
fn on_host_only(model: &Model, shape: &Model, operator: Operator) -> Option<&'static str> {
    let sublayer = operator.sublayer();
    let beside = matches!(sublayer, Sublayer::Router | Sublayer::SharedExpert | Sublayer::Experts);
    match (sublayer, shape.mixer) {
        (Sublayer::Qkv | Sublayer::Attention, Mixer::Latent(_)) => Some("latent attention"),
        (Sublayer::Attention, Mixer::Recurrent(recurrence)) if !recurs(recurrence) => {
            Some("recurrences with keys of more than 256 values or convolutions of more than 8 taps")
        }
        // Its golden models' logits differ by more than rounding explains.
        (Sublayer::Attention, Mixer::Recurrent(_)) if shape.architecture == Architecture::Qwen3Next => {
            Some("the delta nets of Qwen3-Next")
        }
        (Sublayer::Embed, _) if shape.wiring.module_behind.is_some() => Some("the input of an MTP module"),
        (Sublayer::Attention, _) if shape.wiring.value_norm => Some("norms of values"),
        (Sublayer::FfnDown, _) if shape.wiring.layer_scale => Some("factors of layers"),
        (Sublayer::Attention, _) if shape.wiring.keys_are_values => Some("keys that are values"),
        (Sublayer::Attention, _) if model.shapes().iter().any(|shape| shape.wiring.shares_kv) => {
            Some("keys and values that layers share")
        }
        _ if shape.wiring.layer_embedding.is_some() => Some("embeddings for each layer"),
        _ if beside && shape.wiring.norms_beside => Some("experts with norms of their own"),
        _ => None,
    }
}

/// Whether kernels compute a recurrence.
fn recurs(recurrence: Recurrence) -> bool {
    match recurrence {
        Recurrence::GatedDelta { key_dim, taps, .. } | Recurrence::Mamba2 { state: key_dim, taps, .. } => {
            key_dim <= MOST_KEY_VALUES as u64 && taps <= MOST_TAPS as u64
        }
        _ => false,
    }
}

fn check_operator(
    model: &Model,
    shape: &Model,
    formats: &Formats,
    operator: Operator,
) -> Result<(), ExecutorError> {
    let sublayer = operator.sublayer();
    if let Some(feature) = on_host_only(model, shape, operator) {
        let wanted = format!("a GPU does not compute {feature} in this version: place it on the host");
        return Err(ExecutorError::refused(format!("placement.{sublayer}"), operator, wanted));
    }
    if let (Operator::Experts, Some(experts)) = (operator, &shape.experts) {
        // A staging slot has the matrices one after another, and each must start at an aligned
        // address.
        let panel = if shape.activation.is_gated() { 8 } else { 16 };
        let whole = shape.hidden.is_multiple_of(16) && experts.intermediate.is_multiple_of(panel);
        if experts.count > MOST_EXPERTS || !whole {
            let wanted = format!(
                "a GPU computes at most {MOST_EXPERTS} experts, of a multiple of {panel} neurons and a hidden size of a multiple of 16"
            );
            let found = format!("{} of {} neurons in {}", experts.count, experts.intermediate, shape.hidden);
            return Err(ExecutorError::refused("experts", found, wanted));
        }
    }
    if let (Operator::SharedExpert, Some(experts)) = (operator, &shape.experts)
        && !(shape.hidden.is_multiple_of(16) && experts.shared.is_multiple_of(8))
    {
        let wanted =
            "a GPU computes a shared expert of a multiple of 8 neurons in a hidden size of a multiple of 16";
        let found = format!("{} neurons in {}", experts.shared, shape.hidden);
        return Err(ExecutorError::refused("experts", found, wanted));
    }
    let mut dtypes = formats.weights.for_sublayer(sublayer).parts().map(|(dtype, _)| dtype);
    let multiplies = operator.is_matmul() || operator == Operator::Embed;
    if let Some(dtype) = dtypes.find(|dtype| multiplies && !GPU_MATRICES.contains(dtype)) {
        let wanted = format!("a GPU computes {sublayer} of {}", GPU_MATRICES.map(DType::name).join(", "));
        return Err(ExecutorError::refused("formats.weights", dtype, wanted));
    }
    if operator == Operator::Attention && shape.mixer == Mixer::Attention {
        if formats.kv != DType::Bf16 {
            return Err(ExecutorError::refused(
                "formats.kv",
                formats.kv,
                "a GPU attends over a cache of bf16",
            ));
        }
        if !shape.head_dim.is_multiple_of(2) || shape.head_dim > MOST_VALUES as u64 {
            let wanted =
                format!("a GPU attends with heads of an even number of values, at most {MOST_VALUES}");
            return Err(ExecutorError::refused("head_dim", shape.head_dim, wanted));
        }
    }
    Ok(())
}
