//! A machine's rates in the form of published cost models: one number each.

use super::host_and_accelerator::HostAndAccelerator;
use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::program::LowerError;
use crate::published::lia::Layer;
use hwprofiles::{BytesPerSec, DeviceId, Flop, FlopPerSec};
use scenarios::{Operator, Shape, Step, Sublayer, Work};

/// The rate of the FFN's first product over `rows` rows; of q, k and v's where the FFN is a mixture
/// of experts.
pub(super) fn matrix_rate(
    cost_model: CostModel<'_>,
    device: DeviceId,
    rows: u64,
) -> Result<FlopPerSec, PlannerError> {
    let sublayer = if cost_model.model.experts.is_some() { Sublayer::Qkv } else { Sublayer::FfnUp };
    let (n, k) = sublayer.matrix(cost_model.model).unwrap_or((1, 1));
    let (device, weights) = (cost_model.machine.device(device), cost_model.formats.weights);
    let time = weights.for_sublayer(sublayer).mean_time(|dtype| device.gemm_time(dtype, rows, n, k))?.time;
    Ok(Flop::new(2 * u128::from(rows) * u128::from(n) * u128::from(k)) / time)
}

/// The rate of the attention of `step`, counting all its positions, also those above the diagonal.
pub(super) fn attention_rate(
    cost_model: CostModel<'_>,
    device: DeviceId,
    step: &Step,
) -> Result<FlopPerSec, PlannerError> {
    let CostModel { machine, model, formats } = cost_model;
    let kind = model.kind(0);
    let Shape::Attention(shape) =
        Work::count(Operator::Attention, model.shape(kind), formats, step, &(0..0)).shape
    else {
        return matrix_rate(cost_model, device, step.rows());
    };
    let time = machine.device(device).attention_time(formats.kv, &shape)?.time;
    Ok(Layer::count(model.shape(kind), formats, kind, step).attention_flop() / time)
}

/// The rate of the link from the host to the accelerator.
pub(super) fn link_rate(
    cost_model: CostModel<'_>,
    pair: &HostAndAccelerator,
) -> Result<BytesPerSec, PlannerError> {
    let machine = cost_model.machine;
    let missing = || LowerError::NoLink {
        from: machine.memory(pair.dram).name.clone(),
        to: machine.memory(pair.own).name.clone(),
        what: "a rule that streams weights".to_owned(),
    };
    let link = machine.link_between(pair.dram, pair.own).ok_or_else(missing)?;
    Ok(machine.link(link).bandwidth.value)
}
