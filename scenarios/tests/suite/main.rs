//! The tests of the public interface, as one program.

mod architectures;
mod config;
mod engines;
mod experts;
mod families;
mod formats;
mod keys;
mod llama_bench;
mod mixtures;
mod no_panic;
mod operator_laws;
mod placement;
mod presets;
mod published;
mod scenario;

use hwprofiles::Machine;
use proptest::prelude::ProptestConfig;
use scenarios::{Catalog, FileCatalog, GroupChoice, MachineSpec, Reference, ScenarioError};
use std::path::PathBuf;
use std::sync::Arc;

/// The configuration of a property test with `cases` cases, scaled by the variable `FULCRUM_CASES`,
/// a percentage.
fn cases(cases: u32) -> ProptestConfig {
    let percent = match std::env::var("FULCRUM_CASES") {
        Ok(text) => text.trim().parse().expect("FULCRUM_CASES is a whole number of per cent"),
        Err(_) => 100,
    };
    ProptestConfig::with_cases((u64::from(cases) * percent / 100).max(1) as u32)
}

/// Finds models in files, and the same machine under every name, so that a test of something else
/// needs no measured machine.
struct AnyMachine;

impl Catalog for AnyMachine {
    fn machines(&self, _: &MachineSpec, _: &GroupChoice) -> Result<Arc<[Machine]>, ScenarioError> {
        let text = "example-loopback".to_owned();
        let spec = MachineSpec::Named(Reference { text, folder: PathBuf::new() });
        FileCatalog::default().machines(&spec, &GroupChoice::default())
    }
}
