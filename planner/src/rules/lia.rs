//! LIA's policy with a machine's rates.

use super::NoRule;
use super::fit::filled;
use super::sides::Sides;
use crate::cost::Pricing;
use crate::course::Course;
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::program::LowerError;
use crate::published::lia::{DeviceRates, Layer, Policy, Rates};
use hwprofiles::{BytesPerSec, DeviceId, Flop, FlopPerSec};
use scenarios::{Operator, Shape, Step, Sublayer, Work};

/// Rows at which LIA's one rate for all matrix products is read: enough for any device to be at its pace.
const ROWS: u64 = 1024;

/// LIA's policy for each phase, its remaining layers on the accelerator. One of our prefill steps is what LIA takes a
/// prompt to be: weights stream once for each.
pub(super) fn placement(pricing: Pricing<'_>, course: &Course, sides: &Sides) -> Result<Placement, NoRule> {
    let prefill = course.prefill.first().map_or(course.decode, |alike| alike[alike.len() / 2]);
    let policies = [prefill, course.decode].map(|step| policy(pricing, sides, &step));
    let [prefill, decode] = policies;
    let (prefill, decode) = (prefill?, decode?);
    let rest = sides.placement(pricing.model, |sublayer| {
        let device = |policy: Policy| if policy.on_cpu(sublayer) { sides.host } else { sides.accelerator };
        (sides.dram, [device(prefill), device(decode)])
    });
    filled(pricing, &course.extent, &rest, sides)
}

/// LIA's policy for `step`.
fn policy(pricing: Pricing<'_>, sides: &Sides, step: &Step) -> Result<Policy, PlannerError> {
    let layer = Layer::of(pricing.model, pricing.formats, step);
    let rates = |device| device_rates(pricing, device, step, &layer);
    let rates =
        Rates { cpu: rates(sides.host)?, gpu: rates(sides.accelerator)?, link: link(pricing, sides)? };
    Ok(layer.undivided_policy(&rates))
}

/// The device's bandwidth, its rate at many rows of FC1's shape, and its rate at the step's attention.
fn device_rates(
    pricing: Pricing<'_>,
    device: DeviceId,
    step: &Step,
    layer: &Layer,
) -> Result<DeviceRates, PlannerError> {
    let Pricing { machine, model, formats } = pricing;
    let device = machine.device(device);
    let work = Work::of(Operator::Attention, model, formats, step, &(0..0));
    let attention = match work.shape {
        Shape::Attention(shape) => layer.attention_flop() / device.attention_time(formats.kv, &shape)?.time,
        _ => FlopPerSec::new(f64::INFINITY),
    };
    Ok(DeviceRates {
        memory: machine.memory(machine.bandwidth_of(device.memory)).bandwidth.value,
        matrix: matrix_rate(pricing, device)?,
        attention,
    })
}

/// FLOP/s of the FFN's first product over many rows.
pub(super) fn matrix_rate(
    pricing: Pricing<'_>,
    device: &hwprofiles::Device,
) -> Result<FlopPerSec, PlannerError> {
    let (n, k) = Sublayer::FfnUp.matrix(pricing.model).unwrap_or((1, 1));
    let time = device.gemm_time(pricing.formats.weights, ROWS, n, k)?.time;
    Ok(Flop::new(2 * u128::from(ROWS) * u128::from(n) * u128::from(k)) / time)
}

/// From the host to the accelerator.
pub(super) fn link(pricing: Pricing<'_>, sides: &Sides) -> Result<BytesPerSec, PlannerError> {
    let machine = pricing.machine;
    let missing = || LowerError::NoLink {
        from: machine.memory(sides.dram).name.clone(),
        to: machine.memory(sides.own).name.clone(),
        what: "a policy that streams weights".to_owned(),
    };
    let link = machine.link_between(sides.dram, sides.own).ok_or_else(missing)?;
    Ok(machine.link(link).bandwidth.value)
}
