//! The machines and models that scenarios name, each looked up once.

use super::lookup::machine_library;
use hwprofiles::Machine;
use planner::Identity;
use scenarios::{Catalog, GroupChoice, MachineSpec, Model, Reference, ScenarioError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A catalog that remembers what it has looked up: a sweep asks for the same machines and models
/// again and again, and to read one takes longer than to plan.
#[derive(Debug, Default)]
pub(crate) struct CachedCatalog {
    /// A sweep names few machines, so they are searched one by one.
    machines: Mutex<Vec<KnownMachine>>,
    models: Mutex<BTreeMap<Reference, Model>>,
}

/// A machine that was looked up, once for each way to group its GPUs.
#[derive(Debug)]
struct KnownMachine {
    spec: MachineSpec,
    /// The ways that the scenario names.
    groups: GroupChoice,
    machines: Arc<[Machine]>,
    /// What plans record of each.
    identities: Arc<[Identity]>,
}

impl CachedCatalog {
    /// Lets scenarios that lie in no folder call `model` by `name`.
    pub(crate) fn add_model(&self, name: &str, model: Model) {
        let reference = Reference { text: name.to_owned(), folder: PathBuf::new() };
        lock(&self.models).insert(reference, model);
    }

    /// What plans record of each of the machines that `spec` means; `None` where it was not looked
    /// up.
    pub(crate) fn identities(&self, spec: &MachineSpec, groups: &GroupChoice) -> Option<Arc<[Identity]>> {
        find(&lock(&self.machines), spec, groups).map(|known| known.identities.clone())
    }
}

impl Catalog for CachedCatalog {
    fn model(&self, reference: &Reference) -> Result<Model, ScenarioError> {
        let known = lock(&self.models).get(reference).cloned();
        match known {
            Some(model) => Ok(model),
            None => {
                let model = reference.load()?;
                lock(&self.models).insert(reference.clone(), model.clone());
                Ok(model)
            }
        }
    }

    fn machines(&self, spec: &MachineSpec, groups: &GroupChoice) -> Result<Arc<[Machine]>, ScenarioError> {
        if let Some(known) = find(&lock(&self.machines), spec, groups) {
            return Ok(known.machines.clone());
        }
        let machines = spec.grouped(machine_library().this, groups).map_err(ScenarioError::Machine)?;
        let identities = machines.iter().map(Identity::of_machine).collect();
        let mut all = lock(&self.machines);
        // Another thread may have looked the same machine up meanwhile.
        if let Some(known) = find(&all, spec, groups) {
            return Ok(known.machines.clone());
        }
        let (spec, groups) = (spec.clone(), groups.clone());
        all.push(KnownMachine { spec, groups, machines: machines.clone(), identities });
        Ok(machines)
    }
}

fn find<'k>(all: &'k [KnownMachine], spec: &MachineSpec, groups: &GroupChoice) -> Option<&'k KnownMachine> {
    all.iter().find(|known| known.spec == *spec && known.groups == *groups)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
