//! Machines as scenarios name them, each looked up once.

use super::lookup::machine_library;
use crate::error::{OrError, Result};
use hwprofiles::Machine;
use planner::Identity;
use scenarios::MachineSpec;
use std::sync::{Arc, Mutex, PoisonError};

/// A machine with its GPUs grouped in each way that may be chosen.
#[derive(Debug)]
pub(crate) struct GroupedMachine {
    /// The machine for each degree.
    pub(crate) machines: Arc<[Machine]>,
    /// What plans record of each.
    pub(crate) identities: Arc<[Identity]>,
    /// How many GPUs work as one, ascending.
    pub(crate) degrees: Vec<u64>,
    /// A fingerprint of the machine.
    pub(crate) fingerprint: String,
}

/// Machines that were looked up: a sweep asks for the same ones again and again, and to read one
/// takes longer than to plan. Specifications have no order and a sweep names few, so they are
/// searched one by one.
#[derive(Debug, Default)]
pub(crate) struct MachineCache(Mutex<Vec<CachedMachine>>);

#[derive(Debug)]
struct CachedMachine {
    spec: MachineSpec,
    degrees: Vec<u64>,
    grouped: Arc<GroupedMachine>,
}

impl MachineCache {
    /// The machine that `spec` means, with its GPUs in groups of each of `degrees`; without
    /// degrees, in groups of each size that divides them.
    ///
    /// # Errors
    /// There is no such machine, its file is wrong, or a degree does not divide its GPUs.
    pub(crate) fn get(&self, spec: &MachineSpec, degrees: &[u64]) -> Result<Arc<GroupedMachine>> {
        let find = |all: &[CachedMachine]| {
            let known = all.iter().find(|known| known.spec == *spec && known.degrees == degrees);
            known.map(|known| known.grouped.clone())
        };
        if let Some(known) = find(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(known);
        }
        let grouped = Arc::new(GroupedMachine::new(spec, degrees)?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = find(&all) {
            return Ok(known);
        }
        let (spec, degrees) = (spec.clone(), degrees.to_vec());
        all.push(CachedMachine { spec, degrees, grouped: grouped.clone() });
        Ok(grouped)
    }
}

impl GroupedMachine {
    fn new(spec: &MachineSpec, degrees: &[u64]) -> Result<Self> {
        let gpus = degrees.iter().copied().max().unwrap_or(1);
        let machine = spec.machine(machine_library().this, gpus).or_input()?;
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
        Ok(Self { machines, identities, degrees, fingerprint })
    }
}
