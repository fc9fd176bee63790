//! The operators of a plan under the rooflines of its devices.

use super::resolved_plan::ResolvedPlan;
use crate::error::{OrError, Result};
use hwprofiles::{Bytes, BytesPerSec, DeviceId, Flop, FlopPerSec, Phase, Seconds};
use planner::{Action, Lane, PhasePrograms};
use scenarios::{Operator, Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The roofline of a device: no operator is above min(peak, bandwidth × FLOP per byte).
#[derive(Debug, Clone, Copy, PartialEq)]
struct DeviceRoof {
    /// The highest rate of matrix products with weights of the plan's formats.
    peak: Option<FlopPerSec>,
    /// What its own memory reads per second.
    bandwidth: BytesPerSec,
}

/// An operator of all layers in one step on one device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct OperatorSum {
    flop: Flop,
    bytes: Bytes,
    time: Seconds,
}

impl ResolvedPlan {
    /// Of each phase a step that stands for it: the last chunk of the prompt, and a token in the
    /// middle of the answer.
    pub(super) fn typical_steps(&self) -> Vec<(Phase, Step)> {
        let steps = planner::steps(&self.plan.workload, self.plan.prefill_chunk);
        let of = |phase: Phase| -> Vec<Step> {
            steps.iter().filter(|step| step.phase == phase).copied().collect()
        };
        let (prefill, decode) = (of(Phase::Prefill), of(Phase::Decode));
        let typical = [(Phase::Prefill, prefill.last()), (Phase::Decode, decode.get(decode.len() / 2))];
        typical.into_iter().filter_map(|(phase, step)| Some((phase, *step?))).collect()
    }

    /// What each operator of a step computes and moves, and how fast, as JSON: `devices` with
    /// `peak_flop_per_s` and `bandwidth_byte_per_s`, and `points` with `flop_per_byte`,
    /// `flop_per_s` and `share`, the operator's part of its device's time in the step. Operators
    /// that only move bytes have no point.
    ///
    /// # Errors
    /// A rate is missing from the machine.
    pub fn roofline(&self) -> Result<Value> {
        let programs = PhasePrograms::lower(&self.machine, &self.model, &self.placement).or_input()?;
        let mut points = Vec::new();
        let mut used: BTreeMap<DeviceId, DeviceRoof> = BTreeMap::new();
        for (phase, step) in self.typical_steps() {
            let mut sums: BTreeMap<(DeviceId, Operator), OperatorSum> = BTreeMap::new();
            for task in &programs.program(phase).tasks {
                let (Action::Compute { operator, .. }, Lane::Device(device)) = (&task.action, task.lane)
                else {
                    continue;
                };
                let price = self.cost_model().task_cost(task, &step).or_input()?;
                let sum = sums.entry((device, *operator)).or_default();
                sum.flop += price.flop;
                sum.bytes += price.moved();
                sum.time += price.alone;
            }
            for (&(device, operator), sum) in &sums {
                let whole: Seconds =
                    sums.iter().filter(|((on, _), _)| *on == device).map(|(_, it)| it.time).sum();
                let nothing = sum.flop == Flop::ZERO || sum.bytes == Bytes::ZERO || sum.time == Seconds::ZERO;
                if nothing {
                    continue;
                }
                used.entry(device).or_insert_with(|| self.roof(device));
                points.push(json!({
                    "phase": phase,
                    "device": self.machine.device(device).name,
                    "operator": operator.name(),
                    "flop_per_byte": (sum.flop / sum.bytes).get(),
                    "flop_per_s": (sum.flop / sum.time).get(),
                    "share": sum.time / whole,
                }));
            }
        }
        let devices = used.iter().map(|(&device, roof)| {
            json!({
                "name": self.machine.device(device).name,
                "peak_flop_per_s": roof.peak.map(|it| it.get()),
                "bandwidth_byte_per_s": roof.bandwidth.get(),
            })
        });
        Ok(json!({"devices": devices.collect::<Vec<_>>(), "points": points}))
    }

    /// The roofline of a device; of a group of GPUs, of all of them.
    fn roof(&self, device: DeviceId) -> DeviceRoof {
        let device = self.machine.device(device);
        let peak = device.peak_rate(self.plan.formats.weights.distinct());
        DeviceRoof { peak, bandwidth: self.machine.memory(device.memory).bandwidth.value }
    }
}
