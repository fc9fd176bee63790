//! What a GPU can be given.

use crate::error::Error;
use crate::setup::Setup;
use hwprofiles::{DType, DeviceKind, Machine};
use kernels::cuda::calls::MOST_VALUES;
use planner::{Action, Lane, Programs, Source, Task};
use scenarios::Operator;

/// Formats of matrices that its kernels read.
const MATRICES: [DType; 3] = [DType::Bf16, DType::Int8, DType::Int4];
/// Experts by which its kernels group tokens.
const MOST_EXPERTS: u64 = kernels::cuda::calls::Routing::MOST as u64;

/// Refuses tasks for a GPU that no kernel of ours runs, a second GPU, and a host that would read a GPU's memory.
pub(crate) fn check(setup: &Setup, programs: &Programs) -> Result<(), Error> {
    let machine = &setup.machine;
    let mut first = None;
    for task in programs.prefill.tasks.iter().chain(&programs.decode.tasks) {
        let Lane::Device(device) = task.lane else { continue };
        if machine.device(device).kind != DeviceKind::Gpu {
            check_host(machine, task)?;
            continue;
        }
        if *first.get_or_insert(device) != device {
            let wanted = "this version runs one GPU: plan for a machine that has one";
            return Err(Error::refused("placement", &machine.device(device).name, wanted));
        }
        let shared = machine
            .devices
            .iter()
            .find(|other| other.kind != DeviceKind::Gpu && other.memory == machine.device(device).memory);
        if let Some(shared) = shared {
            let wanted = format!("a GPU's memory is its own here, and '{}' has the same", shared.name);
            return Err(Error::refused("placement", &machine.device(device).name, wanted));
        }
        if let Action::Compute { operator, .. } = &task.action {
            check_operator(setup, *operator)?;
        }
    }
    Ok(())
}

/// A task of the host reads no memory of a GPU in place.
fn check_host(machine: &Machine, task: &Task) -> Result<(), Error> {
    let Action::Compute { source: Source::InPlace(memory), .. } = task.action else { return Ok(()) };
    let gpu = machine.devices.iter().find(|device| device.kind == DeviceKind::Gpu && device.memory == memory);
    match gpu {
        None => Ok(()),
        Some(gpu) => {
            let wanted = format!("the host reads no memory of '{}' in place: give it a link", gpu.name);
            Err(Error::refused("placement", &machine.memory(memory).name, wanted))
        }
    }
}

fn check_operator(setup: &Setup, operator: Operator) -> Result<(), Error> {
    let (model, formats) = (&setup.model, &setup.formats);
    let sublayer = operator.sublayer();
    if let (Operator::Experts, Some(experts)) = (operator, &model.experts) {
        // As a slot has their matrices one after the other, each begins where the kernels can read.
        let whole = model.hidden.is_multiple_of(16) && experts.intermediate.is_multiple_of(8);
        if experts.count > MOST_EXPERTS || !whole {
            let wanted = format!(
                "a GPU computes at most {MOST_EXPERTS} experts, of a multiple of 8 neurons and a hidden size of a multiple of 16"
            );
            let found = format!("{} of {} neurons in {}", experts.count, experts.intermediate, model.hidden);
            return Err(Error::refused("experts", found, wanted));
        }
    }
    let dtype = formats.weights.of(sublayer);
    if (operator.is_matmul() || operator == Operator::Embed) && !MATRICES.contains(&dtype) {
        let wanted = format!("a GPU computes {sublayer} of bf16, int8 or int4");
        return Err(Error::refused("formats.weights", dtype, wanted));
    }
    if operator == Operator::Attention {
        if formats.kv != DType::Bf16 {
            return Err(Error::refused("formats.kv", formats.kv, "a GPU attends over a cache of bf16"));
        }
        if !model.head_dim.is_multiple_of(2) || model.head_dim > MOST_VALUES as u64 {
            let wanted =
                format!("a GPU attends with heads of an even number of values, at most {MOST_VALUES}");
            return Err(Error::refused("head_dim", model.head_dim, wanted));
        }
    }
    Ok(())
}

/// An error that a call of a GPU ended with, told of the GPU that `machine` has.
pub(crate) fn named(error: Error, machine: &Machine) -> Error {
    let gpu = machine.devices.iter().find(|device| device.kind == DeviceKind::Gpu);
    match (error, gpu) {
        (Error::Device(source @ kernels::Error::Gpu { .. }), Some(gpu)) => {
            Error::Gpu { device: gpu.name.clone(), source }
        }
        (error, _) => error,
    }
}
