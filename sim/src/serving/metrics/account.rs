//! The use of the machine over a day of serving, and its cost.

use crate::serving::metrics::meter::ResourceUse;
use hwprofiles::{DeviceId, FlopPerSec, Seconds};
use planner::{CostModel, Lane, PhasePrograms, PlannerError, Task, cost, energy};
use scenarios::Costs;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A day's use of one machine, or of several equal machines together, with the terms of
/// `metrics.md`. A value is absent if a number that it depends on is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// FLOP of all steps.
    pub flop: f64,
    /// Bytes over each link.
    pub bytes: BTreeMap<String, f64>,
    /// Bytes through each memory.
    pub memory_bytes: BTreeMap<String, f64>,
    /// The share of the day that each device was busy.
    pub utilization: BTreeMap<String, f64>,
    /// FLOP per second ÷ the best measured matrix-product rates of the devices that compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mfu: Option<f64>,
    /// Bytes per second through memories ÷ the bandwidth of the memories that the plan uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbu: Option<f64>,
    /// Energy of all devices in joules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// Cost of machines and electricity in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The numbers that are missing, and how to supply them.
    #[serde(skip)]
    pub missing: Vec<String>,
}

/// How many engines ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineCount {
    /// Equal machines.
    pub machines: u64,
    /// Engines side by side on each machine.
    pub per_machine: u64,
}

impl Account {
    /// The account of `engines` that ran `programs` for `duration` and used `used` together.
    /// Engines side by side have a group of the machine's GPUs each, and shares are shares of such
    /// a group.
    pub fn new(
        cost_model: &CostModel<'_>,
        programs: &PhasePrograms,
        costs: &Costs,
        used: &ResourceUse,
        duration: Seconds,
        engines: EngineCount,
    ) -> Self {
        let machine = cost_model.machine;
        let machine_time = duration * engines.machines as f64;
        let engine_time = machine_time * engines.per_machine as f64;
        let named = |names: Vec<&String>, amounts: &[u128]| {
            let amounts = amounts.iter().map(|&amount| amount as f64);
            names.into_iter().cloned().zip(amounts).collect::<BTreeMap<_, _>>()
        };
        let busy = machine.devices.iter().zip(&used.busy);
        let mut account = Self {
            flop: used.flop as f64,
            bytes: named(machine.links.iter().map(|link| &link.name).collect(), &used.links),
            memory_bytes: named(machine.memories.iter().map(|memory| &memory.name).collect(), &used.memories),
            utilization: busy
                .map(|(device, busy)| (device.name.clone(), share(busy.get(), engine_time.get())))
                .collect(),
            ..Self::default()
        };
        // A memory within another has no bandwidth of its own. A memory that is striped over two
        // has theirs.
        account.memory_bytes.retain(|name, _| {
            let id = machine.memory_named(name).expect("the name is one of the machine's");
            machine.bandwidth_owner(id) == id && machine.memory(id).stripes.is_empty()
        });
        account.add_peak_shares(cost_model, programs, used, engine_time);
        account.add_energy_and_cost(cost_model, costs, used, machine_time);
        account
    }

    fn add_peak_shares(
        &mut self,
        cost_model: &CostModel<'_>,
        programs: &PhasePrograms,
        used: &ResourceUse,
        time: Seconds,
    ) {
        if time <= Seconds::ZERO {
            return;
        }
        let machine = cost_model.machine;
        self.mfu = peak_rate(cost_model, programs).map(|peak| share(self.flop / time.get(), peak.get()));
        let through = used.memories.iter().sum::<u128>() as f64;
        let bandwidth: f64 = machine
            .memory_ids()
            .filter(|memory| used.memories.get(memory.0).is_some_and(|&bytes| bytes > 0))
            .map(|memory| machine.memory(memory).bandwidth.value.get())
            .sum();
        self.mbu = Some(share(through / time.get(), bandwidth));
    }

    fn add_energy_and_cost(
        &mut self,
        cost_model: &CostModel<'_>,
        costs: &Costs,
        used: &ResourceUse,
        time: Seconds,
    ) {
        match energy(cost_model.machine, time, &used.busy) {
            Ok(joules) => {
                self.energy_j = Some(joules.get());
                match cost(cost_model.machine, costs, time, joules) {
                    Ok(dollars) => self.cost = Some(dollars.get()),
                    Err(error) => self.missing.push(missing_number("cost", &error)),
                }
            }
            Err(error) => self.missing.push(missing_number("energy and cost", &error)),
        }
    }
}

/// `part ÷ whole`, or zero for an empty whole.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The sum over the computing devices of each one's fastest matrix product in any of the weights'
/// formats. `None` if a device has no known rate.
fn peak_rate(cost_model: &CostModel<'_>, programs: &PhasePrograms) -> Option<FlopPerSec> {
    let tasks = programs.prefill.tasks.iter().chain(&programs.decode.tasks);
    let device = |task: &Task| match task.lane {
        Lane::Device(device) => Some(device),
        Lane::Link(_) => None,
    };
    let computing: BTreeSet<_> = tasks.filter_map(device).collect();
    let weights = cost_model.formats.weights;
    let fastest = |device: DeviceId| cost_model.machine.device(device).peak_rate(weights.distinct());
    computing.into_iter().map(fastest).sum()
}

fn missing_number(unknown: &str, error: &PlannerError) -> String {
    match error {
        PlannerError::Unpriced { what, key, wanted } => {
            format!("{unknown} not known: {what} has no {key}: write {wanted}")
        }
        other => format!("{unknown} not known: {other}"),
    }
}
