//! LIA's policy at a machine's rates.

use super::fit::filled;
use super::host_and_accelerator::Sides;
use super::no_rule::NoRule;
use super::speeds::{attention_rate, link_rate, matrix_rate};
use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::program::BatchSteps;
use crate::published::lia::{DeviceRates, Layer, Policy, Rates};
use hwprofiles::{DeviceId, MemoryId};
use scenarios::{LayerKind, Step};
use std::collections::BTreeMap;

/// The number of rows at which LIA's single rate of matrix products is read: enough for any device
/// to reach its rate.
const ROWS: u64 = 1024;

/// LIA's policy for each phase; layers that fit are on the accelerator. LIA's prompt is one of our
/// prefill steps: weights stream once for each.
pub(super) fn placement(
    cost_model: CostModel<'_>,
    batch_steps: &BatchSteps,
    sides: &Sides,
) -> Result<Placement, NoRule> {
    let prefill = batch_steps.prefill.first().map_or(batch_steps.decode, |alike| alike[alike.len() / 2]);
    let mut policies = BTreeMap::new();
    for (kind, _) in cost_model.model.kinds() {
        let of = |step: &Step| policy(cost_model, sides, kind, step);
        policies.insert(kind, [of(&prefill)?, of(&batch_steps.decode)?]);
    }
    let rest = sides.placement(cost_model.model, |_, kind, sublayer| {
        let device = |policy: Policy| if policy.on_cpu(sublayer) { sides.host } else { sides.accelerator };
        (sides.dram, policies[&kind].map(device))
    });
    filled(cost_model, &batch_steps.extent, &rest, sides)
}

/// LIA's policy for layers of `kind` in `step`.
fn policy(
    cost_model: CostModel<'_>,
    sides: &Sides,
    kind: LayerKind,
    step: &Step,
) -> Result<Policy, PlannerError> {
    let rates = |device: DeviceId, memory: MemoryId| -> Result<DeviceRates, PlannerError> {
        let machine = cost_model.machine;
        let memory = machine.bandwidth_of(memory);
        Ok(DeviceRates {
            memory: machine.memory(memory).bandwidth.value,
            matrix: matrix_rate(cost_model, device, ROWS)?,
            attention: attention_rate(cost_model, device, step)?,
        })
    };
    let rates = Rates {
        cpu: rates(sides.host, sides.dram)?,
        gpu: rates(sides.accelerator, sides.own)?,
        link: link_rate(cost_model, sides)?,
    };
    Ok(Layer::of(cost_model.model, cost_model.formats, kind, step).undivided_policy(&rates))
}
