//! What a day of serving made of the machine, and what it cost.

use super::meter::Effort;
use hwprofiles::{DeviceId, FlopPerSec, Seconds};
use planner::{Lane, PlannerError, Pricing, Programs, Task, cost, energy};
use scenarios::Costs;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A day's use of one machine, or of several alike together, in the words of `metrics.md`. What depends on a number
/// that nobody gave is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// FLOP of all steps.
    pub flop: f64,
    /// Bytes over each link.
    pub bytes: BTreeMap<String, f64>,
    /// Bytes through each memory.
    pub memory_bytes: BTreeMap<String, f64>,
    /// The share of the day that each device was at work.
    pub utilization: BTreeMap<String, f64>,
    /// FLOP per second ÷ the best measured rates of products of the devices that compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mfu: Option<f64>,
    /// Bytes per second through memories ÷ the bandwidth of those that the plan uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbu: Option<f64>,
    /// Joules that all devices drew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// Dollars for machines and electricity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// What is missing, and how to supply it.
    #[serde(skip)]
    pub missing: Vec<String>,
}

impl Account {
    /// That of so many machines, on each of which so many engines side by side ran `programs` for `duration`, and which took
    /// `effort` together. Engines side by side have a group of the machine's GPUs each, and shares are those of such a group.
    pub fn of(
        pricing: &Pricing<'_>,
        programs: &Programs,
        costs: &Costs,
        effort: &Effort,
        duration: Seconds,
        [machines, engines]: [u64; 2],
    ) -> Self {
        let machine = pricing.machine;
        let on = duration * machines as f64;
        let time = on * engines as f64;
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let named = |names: Vec<&String>, amounts: &[u128]| {
            let amounts = amounts.iter().map(|&amount| amount as f64);
            names.into_iter().cloned().zip(amounts).collect::<BTreeMap<_, _>>()
        };
        let busy = machine.devices.iter().zip(&effort.busy);
        let mut account = Self {
            flop: effort.flop as f64,
            bytes: named(machine.links.iter().map(|link| &link.name).collect(), &effort.links),
            memory_bytes: named(
                machine.memories.iter().map(|memory| &memory.name).collect(),
                &effort.memories,
            ),
            utilization: busy
                .map(|(device, busy)| (device.name.clone(), share(busy.get(), time.get())))
                .collect(),
            ..Self::default()
        };
        // A memory within another has no bandwidth of its own, and what is striped over two has theirs.
        account.memory_bytes.retain(|name, _| {
            let id = machine.memory_named(name).expect("it is the machine's");
            machine.bandwidth_of(id) == id && machine.memory(id).stripes.is_empty()
        });
        if time > Seconds::ZERO {
            account.mfu = peak(pricing, programs).map(|peak| share(account.flop / time.get(), peak.get()));
            let through = effort.memories.iter().sum::<u128>() as f64;
            let bandwidth: f64 = machine
                .memory_ids()
                .filter(|memory| effort.memories.get(memory.0).is_some_and(|&bytes| bytes > 0))
                .map(|memory| machine.memory(memory).bandwidth.value.get())
                .sum();
            account.mbu = Some(share(through / time.get(), bandwidth));
        }
        match energy(machine, on, &effort.busy) {
            Ok(joules) => {
                account.energy_j = Some(joules.get());
                match cost(machine, costs, on, joules) {
                    Ok(dollars) => account.cost = Some(dollars.get()),
                    Err(error) => account.missing.push(wanted("cost", &error)),
                }
            }
            Err(error) => account.missing.push(wanted("energy and cost", &error)),
        }
        account
    }
}

/// The fastest product measured of each device that computes, in any of the weights' formats, added up; `None` where one
/// has none.
fn peak(pricing: &Pricing<'_>, programs: &Programs) -> Option<FlopPerSec> {
    let tasks = programs.prefill.tasks.iter().chain(&programs.decode.tasks);
    let device = |task: &Task| match task.lane {
        Lane::Device(device) => Some(device),
        Lane::Link(_) => None,
    };
    let used: BTreeSet<_> = tasks.filter_map(device).collect();
    let fastest = |device: DeviceId| {
        let rates = &pricing.machine.device(device).gemm;
        let all: Option<Vec<_>> =
            pricing.formats.weights.distinct().map(|dtype| rates.get(&dtype)?.fastest()).collect();
        all?.into_iter().map(|rate| rate.value).max_by(FlopPerSec::total_cmp)
    };
    used.into_iter().map(fastest).collect::<Option<Vec<_>>>().map(|rates| rates.into_iter().sum())
}

fn wanted(what: &str, error: &PlannerError) -> String {
    match error {
        PlannerError::Unpriced { what: who, key, wanted } => {
            format!("{what} not known: {who} has no {key}: write {wanted}")
        }
        other => format!("{what} not known: {other}"),
    }
}
