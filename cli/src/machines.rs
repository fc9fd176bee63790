//! Machines as scenarios name them, each looked up once.

use crate::exit::{Outcome, Sort};
use crate::inputs;
use hwprofiles::Machine;
use planner::Identity;
use scenarios::MachineSpec;
use std::sync::{Arc, Mutex, PoisonError};

/// A machine with its GPUs grouped in each way that may be chosen.
#[derive(Debug)]
pub struct Grouped {
    /// One for each degree.
    pub machines: Arc<[Machine]>,
    /// What plans record of each.
    pub identities: Arc<[Identity]>,
    /// GPUs that work as one, ascending.
    pub degrees: Vec<u64>,
    /// A fingerprint of the machine.
    pub fingerprint: String,
}

/// Those that were looked up: a sweep asks for the same ones again and again, and reading one takes longer than a plan.
#[derive(Debug, Default)]
pub struct Machines(Mutex<Vec<Known>>);

/// What was asked for, and what was found: specifications have no order, and a sweep names few.
type Known = (MachineSpec, Vec<u64>, Arc<Grouped>);

impl Machines {
    /// The machine that `spec` means, with its GPUs in groups of each of `degrees`; in each that divides them where that is empty.
    pub fn get(&self, spec: &MachineSpec, degrees: &[u64]) -> Outcome<Arc<Grouped>> {
        let asked = degrees.to_vec();
        let find = |all: &[Known]| {
            all.iter().find(|(s, d, _)| s == spec && *d == asked).map(|(.., grouped)| grouped.clone())
        };
        if let Some(known) = find(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(known);
        }
        let gpus = degrees.iter().copied().max().unwrap_or(1);
        let machine = spec.machine(inputs::library().this, gpus).or_input()?;
        let degrees = match degrees {
            [] => machine.tensor_parallel_degrees(),
            named => named.to_vec(),
        };
        let machines = degrees.iter().map(|&degree| machine.with_tensor_parallel(degree));
        let machines: Arc<[Machine]> = machines.collect::<Result<_, _>>().or_input()?;
        let identities: Arc<[Identity]> = machines.iter().map(Identity::of_machine).collect();
        let fingerprint = match degrees[..] {
            [1] => identities[0].fingerprint.clone(),
            _ => machine.fingerprint(),
        };
        let grouped = Arc::new(Grouped { machines, identities, degrees, fingerprint });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = find(&all) {
            return Ok(known);
        }
        all.push((spec.clone(), asked, grouped.clone()));
        Ok(grouped)
    }
}
