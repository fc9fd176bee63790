//! One run of a published system: machine, model and policy from its description, priced by the simulator.

use super::described::described;
use super::place::Place;
use super::testbed;
use super::whole::Whole;
use crate::exit::{Outcome, Sort};
use crate::models::Models;
use anyhow::anyhow;
use hwprofiles::{DType, Device, DeviceKind, Machine, MemoryKind};
use planner::{Placement, Pricing, Programs, Question, Rule, Times};
use scenarios::published::{Publication, Scope};
use scenarios::{Costs, Formats, Model, Objective, Slo, Workload};
use serde::Deserialize;
use serde_json::Value;

/// What a group's run says, its texts filled in. What it leaves out is the row's: `model`, `batch`, `input_len`, `output_len`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// Which of the publication's machines; its only one where absent.
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
    /// Tokens of a prompt that enter in one step; all where absent.
    #[serde(default)]
    chunk: Option<f64>,
    /// Where everything is; on the first accelerator where nobody says.
    #[serde(default)]
    place: Option<Place>,
    /// A rule that says it, with the machine's rates.
    #[serde(default)]
    rule: Option<String>,
    /// What the planner, which says it, is to be best at.
    #[serde(default)]
    plan: Option<Objective>,
    /// A matrix product instead of a batch.
    #[serde(default)]
    product: Option<Product>,
    /// A whole scenario instead, as its file would be: requests that come and go, a plan's energy, a training step.
    #[serde(default)]
    scenario: Option<Value>,
    /// Of the scenario `found`, the largest value of a key with which so much of its requests keep their limits:
    /// `{find: "workload.concurrency=1..512", attainment: 0.9}`.
    #[serde(default)]
    largest: Option<Search>,
    /// The publication's machine of this name itself instead: `dram.bandwidth`, `gpu.price`.
    #[serde(default)]
    describe: Option<String>,
}

/// The search of a scenario's largest load.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    find: String,
    attainment: f64,
}

/// y[m, n] = x[m, k] · W[n, k]ᵀ.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Product {
    device: String,
    m: f64,
    n: f64,
    k: f64,
    format: DType,
}

fn half_precision() -> Formats {
    Formats { weights: DType::F16.into(), kv: DType::F16, activations: DType::F16 }
}

/// What a case is looked up in.
pub struct Case<'a> {
    pub publication: &'a Publication,
    pub scope: &'a Scope,
    /// The row's model.
    pub model: &'a str,
}

impl Case<'_> {
    /// Runs `template`; its numbers by name.
    pub fn run(&self, template: &Value) -> Outcome<Vec<(String, f64)>> {
        let filled = self.scope.filled(template).map_err(|reason| anyhow!(reason)).or_input()?;
        let run: Run = serde_json::from_value(filled).or_input()?;
        match &run {
            Run { scenario: Some(scenario), largest, .. } => {
                let whole = Whole { scenario, models: self.models(scenario)? };
                match largest {
                    Some(search) => whole.largest(&search.find, search.attainment),
                    None => whole.numbers(),
                }
            }
            Run { largest: Some(_), .. } => Err(anyhow!("largest: say of which scenario")).or_input(),
            Run { describe: Some(name), .. } => Ok(described(&self.machine(Some(name))?)),
            Run { product: Some(product), machine, .. } => product.time(&self.machine(machine.as_deref())?),
            _ => self.batch(&run),
        }
    }

    /// Runs a batch.
    fn batch(&self, run: &Run) -> Outcome<Vec<(String, f64)>> {
        let machine = self.machine(run.machine.as_deref())?;
        let model = self.model(run.model.as_deref().unwrap_or(self.model))?;
        let number = |own: Option<f64>, column: &str| -> Outcome<u64> {
            let named = || {
                self.scope
                    .number(column)
                    .ok_or_else(|| anyhow!("the row has no {column}: the run must say it"))
            };
            let number = own.map_or_else(named, Ok).or_input()?;
            match number >= 1.0 {
                true => Ok(number.round() as u64),
                false => Err(anyhow!("{column} is {number}: at least 1 is wanted")).or_input(),
            }
        };
        let prompt = number(run.prompt, "input_len")?;
        let workload = Workload::new(number(run.batch, "batch")?, prompt, number(run.output, "output_len")?);
        let chunk = run.chunk.map_or(prompt, |chunk| (chunk.round() as u64).clamp(1, prompt));
        let pricing = Pricing { machine: &machine, model: &model, formats: &run.formats };
        let (placement, times) = run.placed(pricing, workload, chunk)?;
        let extent = planner::Extent::of(&workload, chunk);
        let programs = Programs::lower(&machine, &model, &placement).or_input()?;
        let usage = planner::usage(&machine, &model, &run.formats, &placement, &programs, &extent);
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

    /// The publication's own model, where `scenario` names one.
    fn models(&self, scenario: &Value) -> Outcome<Models> {
        let models = Models::default();
        let named = scenario["model"].as_str().filter(|name| self.publication.models.contains_key(*name));
        if let Some(name) = named {
            models.put(name, self.model(name)?);
        }
        Ok(models)
    }

    fn machine(&self, name: Option<&str>) -> Outcome<Machine> {
        let machines = &self.publication.machines;
        let only = || machines.keys().next().map(String::as_str).filter(|_| machines.len() == 1);
        let name = name.or_else(only).ok_or_else(|| anyhow!("say which machine")).or_input()?;
        let template =
            machines.get(name).ok_or_else(|| anyhow!("there is no machine '{name}'")).or_input()?;
        let filled =
            self.scope.filled(template).map_err(|reason| anyhow!("machine {name}: {reason}")).or_input()?;
        testbed::machine(name, &filled)
    }

    fn model(&self, name: &str) -> Outcome<Model> {
        match self.publication.models.get(name) {
            Some(Value::String(preset)) => Model::preset(preset).or_input(),
            Some(config) => {
                let config = self
                    .scope
                    .filled(config)
                    .map_err(|reason| anyhow!("model {name}: {reason}"))
                    .or_input()?;
                Model::from_config_json(name, &format!("model {name}"), &config.to_string()).or_input()
            }
            None => Model::preset(&name.to_lowercase()).or_input(),
        }
    }
}

impl Run {
    fn placed(&self, pricing: Pricing<'_>, workload: Workload, chunk: u64) -> Outcome<(Placement, Times)> {
        let Pricing { machine, model, .. } = pricing;
        let objective = self.plan.unwrap_or_default();
        let (slo, costs) = (Slo::default(), Costs::default());
        let question = Question { pricing, workload, objective, slo, costs, draft: None };
        let scorer = |placement: &Placement, chunk: u64| sim::estimate(pricing, placement, &workload, chunk);
        let (placement, chunk) = match (&self.place, &self.rule, self.plan) {
            (Some(place), ..) => (place.placement(machine, model)?, chunk),
            (None, Some(name), _) => {
                let rule = Rule::ALL.into_iter().find(|rule| rule.name() == name);
                let rule = rule.ok_or_else(|| anyhow!("there is no rule '{name}'")).or_input()?;
                let plan = planner::follow(&question, rule, &scorer).or_input()?;
                (plan.placement(machine, model).or_input()?, plan.prefill_chunk)
            }
            (None, None, Some(_)) => {
                let plan = planner::plan(&question, &scorer).or_input()?;
                (plan.placement(machine, model).or_input()?, plan.prefill_chunk)
            }
            (None, None, None) => (Place::simple(machine, model), chunk),
        };
        let times = sim::estimate(pricing, &placement, &workload, chunk).or_input()?;
        Ok((placement, times))
    }
}

impl Product {
    fn time(&self, machine: &Machine) -> Outcome<Vec<(String, f64)>> {
        let device = machine.device_named(&self.device);
        let unknown = || anyhow!("there is no device '{}' in {}", self.device, machine.name);
        let device = machine.device(device.ok_or_else(unknown).or_input()?);
        let [m, n, k] = [self.m, self.n, self.k].map(|size| size.round() as u64);
        let time = device.gemm_time(self.format, m, n, k).or_input()?.time + device.launch.value;
        Ok(named([("time", time.get())]))
    }
}

fn named<const N: usize>(numbers: [(&str, f64); N]) -> Vec<(String, f64)> {
    numbers.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}
