//! One run of a published system: machine, model and policy are in its description, and the
//! simulator prices it.

use super::machine_numbers::machine_numbers;
use super::policy::PlacementPolicy;
use super::scenario_run::ScenarioRun;
use super::testbed::{Testbed, read_testbed};
use crate::error::{Error, OrError, Result};
use crate::pipeline::CachedCatalog;
use hwprofiles::{DType, Device, DeviceKind, Machine, MemoryId, MemoryKind};
use planner::{CostModel, PhasePrograms, PhaseTimes, Placement, Rule};
use scenarios::published::{Publication, Scope};
use scenarios::{Formats, Model, Objective, Requirements, Workload};
use serde::Deserialize;
use serde_json::Value;

/// The run of a group, its expressions filled in. The row has the keys that it leaves out: `model`,
/// `batch`, `input_len`, `output_len`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunTemplate {
    /// One of the publication's machines; its only one where absent.
    #[serde(default)]
    machine: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default = "half_precision")]
    formats: Formats,
    #[serde(default)]
    batch: Option<f64>,
    #[serde(default)]
    prompt: Option<f64>,
    #[serde(default)]
    output: Option<f64>,
    /// Tokens of a prompt that enter in one step; all of them where absent.
    #[serde(default)]
    chunk: Option<f64>,
    /// Where everything is; without `place`, `rule` and `plan`, on the first accelerator.
    #[serde(default)]
    place: Option<PlacementPolicy>,
    /// The rule that places everything, with the machine's rates.
    #[serde(default)]
    rule: Option<String>,
    /// The objective of the planner, which places everything.
    #[serde(default)]
    plan: Option<Objective>,
    /// A matrix product instead of a batch.
    #[serde(default)]
    product: Option<ProductRun>,
    /// A whole scenario instead, as its file would be: requests that come and go, a plan's energy,
    /// a training step.
    #[serde(default)]
    scenario: Option<Value>,
    /// As `found`, the largest value of a key of the scenario with which this share of its requests
    /// keeps the limits: `{find: "workload.concurrency=1..512", attainment: 0.9}`.
    #[serde(default)]
    largest: Option<AttainmentSearch>,
    /// The numbers of one of the publication's machines instead: `dram.bandwidth`, `gpu.price`.
    #[serde(default)]
    describe: Option<String>,
}

/// The search of a scenario's largest load.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttainmentSearch {
    find: String,
    attainment: f64,
}

/// y[m, n] = x[m, k] · W[n, k]ᵀ.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProductRun {
    device: String,
    m: f64,
    n: f64,
    k: f64,
    format: DType,
}

fn half_precision() -> Formats {
    Formats { weights: DType::F16.into(), kv: DType::F16, activations: DType::F16 }
}

/// A row's run: the publication, its numbers for the row, and the row's model.
pub(crate) struct PublishedRun<'a> {
    pub(crate) publication: &'a Publication,
    pub(crate) scope: &'a Scope,
    /// The row's model.
    pub(crate) model: &'a str,
}

impl PublishedRun<'_> {
    /// Runs `template`; its numbers by name.
    ///
    /// # Errors
    /// The template is wrong, or its run is not possible.
    pub(crate) fn run(&self, template: &Value) -> Result<Vec<(String, f64)>> {
        let filled = self.scope.filled(template).or_input()?;
        let run: RunTemplate = serde_json::from_value(filled).or_input()?;
        match &run {
            RunTemplate { scenario: Some(scenario), largest, .. } => {
                let whole = ScenarioRun { scenario, catalog: self.catalog(scenario)? };
                match largest {
                    Some(search) => whole.largest(&search.find, search.attainment),
                    None => whole.numbers(),
                }
            }
            RunTemplate { largest: Some(_), .. } => Err(Error::input("largest: say of which scenario")),
            RunTemplate { describe: Some(name), .. } => Ok(machine_numbers(&self.testbed(Some(name))?)),
            RunTemplate { product: Some(product), machine, .. } => {
                product.time(&self.testbed(machine.as_deref())?.machine)
            }
            _ => self.batch(&run),
        }
    }

    /// Runs a batch.
    fn batch(&self, run: &RunTemplate) -> Result<Vec<(String, f64)>> {
        let testbed = self.testbed(run.machine.as_deref())?;
        let machine = &testbed.machine;
        let model = self.model(run.model.as_deref().unwrap_or(self.model))?;
        let number = |own: Option<f64>, column: &str| self.count(own, column);
        let prompt = number(run.prompt, "input_len")?;
        let workload = Workload::new(number(run.batch, "batch")?, prompt, number(run.output, "output_len")?);
        let chunk = run.chunk.map_or(prompt, |chunk| (chunk.round() as u64).clamp(1, prompt));
        let cost_model = CostModel { machine, model: &model, formats: &run.formats };
        let (placement, times) = run.placed(cost_model, workload, chunk)?;
        let extent = planner::RunExtent::from_workload(&workload, chunk);
        let programs = PhasePrograms::lower(machine, &model, &placement).or_input()?;
        let usage = planner::usage(machine, &model, &run.formats, &placement, &programs, &extent);
        // What a prompt needs for a moment depends on chunks and micro-batches, which few
        // publications state. What stays must fit.
        for (index, usage) in usage.iter().enumerate() {
            testbed.require_room(MemoryId(index), usage.weights + usage.kv)?;
        }
        let own = |cpu: bool| {
            let owned = |d: &&Device| (d.kind == DeviceKind::Cpu) == cpu;
            machine.devices.iter().find(owned).map_or(0.0, |d| usage[d.memory.0].total().as_f64())
        };
        let accelerators = |slice: &planner::Slice| machine.memory(slice.home).kind == MemoryKind::Hbm;
        let resident =
            placement.layers.iter().filter(|layer| layer.sublayers.iter().flatten().all(accelerators));
        Ok(named([
            ("ttft", times.ttft.get()),
            ("tpot", times.tpot.map_or(0.0, |tpot| tpot.get())),
            ("layers", model.layers as f64),
            ("hidden", model.hidden as f64),
            ("gpu_bytes", own(false)),
            ("cpu_bytes", own(true)),
            ("gpu_layers", resident.count() as f64),
            ("active_parameters", model.active_parameters().get() as f64),
        ]))
    }

    /// The number that the run has of its own, or that of the row's column; at least 1.
    fn count(&self, own: Option<f64>, column: &str) -> Result<u64> {
        let missing = || Error::input(format!("the row has no {column}: the run must say it"));
        let number = own.or_else(|| self.scope.number(column)).ok_or_else(missing)?;
        match number >= 1.0 {
            true => Ok(number.round() as u64),
            false => Err(Error::input(format!("{column} is {number}: at least 1 is wanted"))),
        }
    }

    /// The publication's own model, where `scenario` names one.
    fn catalog(&self, scenario: &Value) -> Result<CachedCatalog> {
        let catalog = CachedCatalog::default();
        let named = scenario["model"].as_str().filter(|name| self.publication.models.contains_key(*name));
        if let Some(name) = named {
            catalog.add_model(name, self.model(name)?);
        }
        Ok(catalog)
    }

    fn testbed(&self, name: Option<&str>) -> Result<Testbed> {
        let machines = &self.publication.machines;
        let only = || machines.keys().next().map(String::as_str).filter(|_| machines.len() == 1);
        let name = name.or_else(only).ok_or_else(|| Error::input("say which machine"))?;
        let unknown = || Error::input(format!("there is no machine '{name}'"));
        let template = machines.get(name).ok_or_else(unknown)?;
        let wrong = |reason| Error::input(format!("machine {name}: {reason}"));
        read_testbed(name, &self.scope.filled(template).map_err(wrong)?)
    }

    fn model(&self, name: &str) -> Result<Model> {
        match self.publication.models.get(name) {
            Some(Value::String(preset)) => Model::preset(preset).or_input(),
            Some(config) => {
                let wrong = |reason| Error::input(format!("model {name}: {reason}"));
                let config = self.scope.filled(config).map_err(wrong)?;
                Model::from_config_json(name, &format!("model {name}"), &config.to_string()).or_input()
            }
            None => Model::preset(&name.to_lowercase()).or_input(),
        }
    }
}

impl RunTemplate {
    /// The placement that the run names, and the times that it comes to.
    fn placed(
        &self,
        cost_model: CostModel<'_>,
        workload: Workload,
        chunk: u64,
    ) -> Result<(Placement, PhaseTimes)> {
        let CostModel { machine, model, .. } = cost_model;
        let objective = self.plan.unwrap_or_default();
        let requirements = Requirements { objective, ..Requirements::from(workload) };
        let problem = planner::Problem { cost_model, requirements, draft: None };
        let scorer =
            |placement: &Placement, chunk: u64| sim::estimate(cost_model, placement, &workload, chunk);
        let (placement, chunk) = match (&self.place, &self.rule, self.plan) {
            (Some(place), ..) => (place.placement(machine, model)?, chunk),
            (None, Some(name), _) => {
                let rule = Rule::ALL.into_iter().find(|rule| rule.name() == name);
                let unknown = || Error::input(format!("there is no rule '{name}'"));
                let rule = rule.ok_or_else(unknown)?;
                let plan = planner::follow(&problem, rule, &scorer).or_input()?;
                (plan.placement(machine, model).or_input()?, plan.prefill_chunk)
            }
            (None, None, Some(_)) => {
                let plan = planner::plan(&problem, &scorer).or_input()?;
                (plan.placement(machine, model).or_input()?, plan.prefill_chunk)
            }
            (None, None, None) => (PlacementPolicy::on_one_device(machine, model), chunk),
        };
        let times = sim::estimate(cost_model, &placement, &workload, chunk).or_input()?;
        Ok((placement, times))
    }
}

impl ProductRun {
    fn time(&self, machine: &Machine) -> Result<Vec<(String, f64)>> {
        let device = machine.device_named(&self.device);
        let unknown = || Error::input(format!("there is no device '{}' in {}", self.device, machine.name));
        let device = machine.device(device.ok_or_else(unknown)?);
        let [m, n, k] = [self.m, self.n, self.k].map(|size| size.round() as u64);
        let time = device.gemm_time(self.format, m, n, k).or_input()?.time + device.launch.value;
        Ok(named([("time", time.get())]))
    }
}

fn named<const N: usize>(numbers: [(&str, f64); N]) -> Vec<(String, f64)> {
    numbers.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}
