//! Steps of a prompt that follow each other through several GPUs.
//!
//! Where GPUs compute the layers in turn, the first one is free for the prompt's next step as soon
//! as it has passed a step on. Some engines use that, for a share q of the time. If steps take d
//! each and the busiest GPU is at work for b of it, a step begins d − q·(d − b) after the one
//! before.

use crate::cost::cost_model::CostModel;
use crate::program::{Lane, Program, Task};
use hwprofiles::DeviceId;
use scenarios::Phase;
use std::collections::BTreeSet;

/// The devices that steps of a prompt follow each other through.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOverlap {
    devices: Vec<DeviceId>,
    /// Of the time in which a device would wait, the share in which it works.
    share: f64,
}

impl StepOverlap {
    /// How steps of `program` overlap; `None` where each waits for the one before: in decode, with
    /// all layers on one device or some on a CPU, or by an engine that does not do so.
    pub fn new(cost_model: &CostModel<'_>, program: &Program) -> Option<Self> {
        if program.phase != Phase::Prefill {
            return None;
        }
        let device = |task: &Task| match task.lane {
            Lane::Device(device) => Some(device),
            Lane::Link(_) => None,
        };
        let devices: BTreeSet<_> = program.tasks.iter().filter_map(device).collect();
        // Embeddings and the head may be anywhere.
        let layers = program.tasks.iter().filter(|task| task.layer.is_some());
        let of_layers: BTreeSet<_> = layers.filter_map(device).collect();
        let share = |device: &DeviceId| {
            Some(cost_model.machine.device(*device).details.step_overlap.as_ref()?.value.get())
        };
        let shares: Option<Vec<_>> = of_layers.iter().map(share).collect();
        let share = shares?.into_iter().reduce(f64::min).filter(|_| of_layers.len() > 1)?;
        Some(Self { devices: devices.into_iter().collect(), share: share.min(1.0) })
    }

    /// The seconds in which each device is at work, by the lanes and times of tasks.
    pub fn busy(&self, tasks: impl Iterator<Item = (Lane, f64)>) -> Vec<f64> {
        let mut busy = vec![0.0; self.devices.len()];
        for (lane, seconds) in tasks {
            let at = self.devices.iter().position(|device| lane == Lane::Device(*device));
            at.into_iter().for_each(|at| busy[at] += seconds);
        }
        busy
    }

    /// The devices.
    pub(crate) fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// Seconds that overlapping saves. `duration` and `busy`, the time that each device is at work,
    /// are sums over all steps but the last, which no step follows.
    pub fn saved(&self, duration: f64, busy: &[f64]) -> f64 {
        let busiest = busy.iter().copied().fold(0.0, f64::max);
        self.share * (duration - busiest).max(0.0)
    }
}
