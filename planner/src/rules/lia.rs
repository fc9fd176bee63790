//! LIA's policy at a machine's rates.

use super::fit::filled;
use super::host_and_accelerator::HostAndAccelerator;
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
    pair: &HostAndAccelerator,
) -> Result<Placement, NoRule> {
    let prefill = batch_steps.prefill.first().map_or(batch_steps.decode, |alike| alike[alike.len() / 2]);
    let mut policies = BTreeMap::new();
    for (kind, _) in cost_model.model.kinds() {
        let policy_for = |step: &Step| policy(cost_model, pair, kind, step);
        policies.insert(kind, [policy_for(&prefill)?, policy_for(&batch_steps.decode)?]);
    }
    let rest = pair.placement(cost_model.model, |_, kind, sublayer| {
        let device = |policy: Policy| if policy.on_cpu(sublayer) { pair.host } else { pair.accelerator };
        (pair.dram, policies[&kind].map(device))
    });
    filled(cost_model, &batch_steps.extent, &rest, pair)
}

/// LIA's policy for layers of `kind` in `step`.
fn policy(
    cost_model: CostModel<'_>,
    pair: &HostAndAccelerator,
    kind: LayerKind,
    step: &Step,
) -> Result<Policy, PlannerError> {
    let rates = |device: DeviceId, memory: MemoryId| -> Result<DeviceRates, PlannerError> {
        let machine = cost_model.machine;
        let memory = machine.bandwidth_owner(memory);
        Ok(DeviceRates {
            memory: machine.memory(memory).bandwidth.value,
            matrix: matrix_rate(cost_model, device, ROWS)?,
            attention: attention_rate(cost_model, device, step)?,
        })
    };
    let rates = Rates {
        cpu: rates(pair.host, pair.dram)?,
        gpu: rates(pair.accelerator, pair.own)?,
        link: link_rate(cost_model, pair)?,
    };
    Ok(Layer::count(cost_model.model.shape(kind), cost_model.formats, kind, step).undivided_policy(&rates))
}
