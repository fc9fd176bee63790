//! The capacity question of a scenario: how many machines a load takes, and what they cost.
//!
//! ```yaml
//! capacity:
//!   load: 100 req/s                  # or 900 users in a closed loop; default: the workload's
//!   growth: 40 %                     # each year
//!   years: 3
//!   attainment: 99 %                 # share of requests that keep every limit
//!   duty: 60 %                       # share of the time in which the load is present
//!   prices: {per_kwh: 0.09 USD, pue: 1.2, hosting: 160 EUR}
//!   currencies: {EUR: 1.08 USD on 2026-11-01}
//!   machines:
//!     - h100-sxm
//!     - 8x H200
//!     - name: two of them
//!       machine: {…}
//!       set: {tensor_parallel: 2}
//!       price: 250000 USD
//!       power: 2.1 kW
//! ```

use crate::capacity::currencies::Currencies;
use crate::capacity::market_prices::{MarketPrices, read_market_prices};
use crate::input::document::Document;
use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::load::arrivals::Requests;
use crate::load::offered_load::{LoadUnit, OfferedLoad};
use crate::question::scenario::Scenario;
use hwprofiles::{Dollars, RequestsPerSec, Watts};
use serde_json::{Map, Value};

/// How many machines a load takes.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityQuestion {
    /// The total load.
    pub load: OfferedLoad,
    /// Relative growth of the load from one year to the next.
    pub growth: f64,
    /// Number of years.
    pub years: u64,
    /// Share of requests that must keep every limit.
    pub attainment: f64,
    /// Share of the time in which the load is present.
    pub duty: f64,
    /// Prices of buying and running machines.
    pub prices: MarketPrices,
    /// Exchange rates of the currencies in which prices are given.
    pub currencies: Currencies,
    /// The machines to compare; at least one.
    pub machines: Vec<MachineOption>,
}

/// A machine that may be bought, with the scenario on it.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineOption {
    /// The name that reports show.
    pub name: String,
    /// The scenario on this machine.
    pub scenario: Scenario,
    /// Price of the whole machine; by default the sum of its parts' prices.
    pub price: Option<Dollars>,
    /// Power of the whole machine under load; by default the sum of its devices' power.
    pub power: Option<Watts>,
    /// Power of the whole machine while it is idle.
    pub idle_power: Option<Watts>,
}

const KEYS: [&str; 8] = ["load", "growth", "years", "attainment", "duty", "prices", "currencies", "machines"];
const MACHINE_KEYS: [&str; 6] = ["name", "machine", "set", "price", "power", "idle_power"];

impl Document {
    /// Reads `capacity`, and the scenario on each of its machines.
    ///
    /// # Errors
    /// The key is absent or wrong, the scenario is wrong on one of the machines, there is no limit
    /// on the time to the first token, or the workload is not a serving workload.
    pub fn capacity(&self) -> Result<CapacityQuestion, ScenarioError> {
        let root = DocumentSection::root(&self.source, &self.root)?;
        let section = root.section("capacity")?;
        let section =
            section.ok_or_else(|| root.missing("capacity", "{machines: [h100-sxm, l40s]} is wanted"))?;
        section.only(&KEYS)?;
        let currencies = Currencies::read(root.section("capacity.currencies")?.as_ref())?;
        let machines = self.machine_options(&section, &currencies)?;
        let first = &machines[0].scenario;
        let load = read_load(&section, check_serving(&root, first)?)?;
        let unit = |option: &MachineOption| Some(option.scenario.workload.serving()?.requests.load_unit());
        if let Some(other) = machines.iter().find(|option| unit(option) != Some(load.unit)) {
            let wanted =
                format!("{} is given another kind of load than the first: one is wanted", other.name);
            return Err(section.wrong("machines", &wanted));
        }
        Ok(CapacityQuestion {
            load,
            growth: read_share(&section, "growth", [-0.9, 10.0])?.unwrap_or(0.0),
            years: section.count("years", 30)?.unwrap_or(3),
            attainment: read_share(&section, "attainment", [0.5, 1.0])?.unwrap_or(0.99),
            duty: read_share(&section, "duty", [0.01, 1.0])?.unwrap_or(1.0),
            prices: read_market_prices(root.section("capacity.prices")?.as_ref(), first.costs, &currencies)?,
            currencies,
            machines,
        })
    }

    fn machine_options(
        &self,
        section: &DocumentSection<'_>,
        currencies: &Currencies,
    ) -> Result<Vec<MachineOption>, ScenarioError> {
        const WANTED: &str =
            "a list of machines is wanted, each a name or {name: …, machine: …, set: {…}, price: …}";
        match section.get("machines") {
            None => Err(section.missing("machines", WANTED)),
            Some(Value::Array(all)) if !all.is_empty() => {
                let mut options = Vec::new();
                for (engine, document) in self.with_each_engine()? {
                    for (index, value) in all.iter().enumerate() {
                        let option = document.machine_option(index, value, currencies)?;
                        let name = engine.as_ref().map(|engine| format!("{} with {engine}", option.name));
                        options.push(MachineOption { name: name.unwrap_or(option.name), ..option });
                    }
                }
                let twice = options
                    .iter()
                    .enumerate()
                    .find(|(index, option)| options[..*index].iter().any(|other| other.name == option.name));
                match twice {
                    Some((_, option)) => {
                        let wanted = format!("two are called {}: name them", option.name);
                        Err(section.wrong("machines", &wanted))
                    }
                    None => Ok(options),
                }
            }
            Some(_) => Err(section.wrong("machines", WANTED)),
        }
    }

    /// The document with each engine of a list, and what it is called; as it is without a list.
    fn with_each_engine(&self) -> Result<Vec<(Option<String>, Self)>, ScenarioError> {
        let Some(Value::Array(engines)) = self.root.get("engine") else {
            return Ok(vec![(None, self.clone())]);
        };
        let with = |engine: &Value| {
            let called = ["name", "file"].iter().find_map(|key| engine.get(key));
            let called = called.unwrap_or(engine).as_str().map(str::to_owned);
            let mut document = self.clone();
            document.set_from_document("engine", engine)?;
            Ok((called, document))
        };
        if engines.is_empty() {
            let root = DocumentSection::root(&self.source, &self.root)?;
            return Err(root.wrong("engine", "an engine or several are wanted, as [vllm, sglang]"));
        }
        engines.iter().map(with).collect()
    }

    fn machine_option(
        &self,
        index: usize,
        value: &Value,
        currencies: &Currencies,
    ) -> Result<MachineOption, ScenarioError> {
        let path = format!("capacity.machines.{index}");
        let entries = machine_entries(value);
        let section = DocumentSection::at(&self.source, &path, &entries)?;
        section.only(&MACHINE_KEYS)?;
        let mut document = self.clone();
        let machine = section.get("machine").or(self.root.get("machine"));
        let machine = machine.ok_or_else(|| {
            section.missing("machine", "a machine's name, its file, or its parts ({cpu: …, …})")
        })?;
        let words = match machine {
            Value::Number(number) => Some(number.to_string()),
            other => other.as_str().map(str::to_owned),
        };
        let name = match (section.text("name")?, words) {
            (Some(name), _) => name.to_owned(),
            (None, Some(name)) => name,
            (None, None) => {
                parts_name(machine).ok_or_else(|| section.missing("name", "a name for a machine of parts"))?
            }
        };
        let within = |error: ScenarioError| ScenarioError::Within {
            place: self.source.place(&path),
            name: name.clone(),
            error: Box::new(error),
        };
        document.source.machine_at = section.get("machine").map(|_| match value.get("machine") {
            Some(_) => format!("{path}.machine"),
            None => path.clone(),
        });
        document.set_from_document("machine", machine).map_err(within)?;
        match section.get("set") {
            None => {}
            Some(Value::Object(settings)) => {
                for (key, value) in settings {
                    document.set_from_document(key, value).map_err(within)?;
                }
            }
            Some(_) => {
                return Err(section.wrong("set", "keys and values are wanted, like {tensor_parallel: 2}"));
            }
        }
        document.need_no_requests();
        let power = |key| section.quantity(key, ["a power", "2.1 kW"], |power: &Watts| power.get());
        Ok(MachineOption {
            scenario: document.scenario().map_err(within)?,
            price: currencies.price(&section, "price")?,
            power: power("power")?,
            idle_power: power("idle_power")?,
            name,
        })
    }

    /// Lets an open loop leave out how many requests come: as many are simulated as the answer
    /// needs, and at least those that are written.
    fn need_no_requests(&mut self) {
        let workload = self.root.get_mut("workload").and_then(Value::as_object_mut);
        if let Some(workload) = workload.filter(|workload| workload.contains_key("arrivals")) {
            let requests = workload.entry("requests").or_insert(Value::Null);
            if requests.is_null() {
                *requests = Value::from(1);
            }
        }
    }
}

/// The keys of one machine of the list: a name or words stand for `machine`, and so do the parts of
/// a machine, which may stand beside the other keys.
fn machine_entries(value: &Value) -> Value {
    let with_machine = |mut entries: Map<String, Value>, machine: Value| {
        entries.insert("machine".to_owned(), machine);
        Value::Object(entries)
    };
    match value {
        Value::String(_) | Value::Number(_) => with_machine(Map::new(), value.clone()),
        Value::Object(keys)
            if !keys.contains_key("machine") && (keys.contains_key("cpu") || keys.contains_key("gpu")) =>
        {
            let is_part = |(key, _): &(String, Value)| !MACHINE_KEYS.contains(&key.as_str());
            let (parts, others): (Map<_, _>, Map<_, _>) = keys.clone().into_iter().partition(is_part);
            with_machine(others, Value::Object(parts))
        }
        _ => value.clone(),
    }
}

/// A name for a machine of `parts`: that of its GPUs, or of its CPU where it has none.
fn parts_name(parts: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match (parts.get("gpu"), parts.get("cpu")) {
        (Some(Value::Array(gpus)), _) => {
            Some(gpus.iter().map(gpu_name).collect::<Option<Vec<_>>>()?.join(" and "))
        }
        (Some(gpu), _) => gpu_name(gpu),
        (None, cpu) => cpu.and_then(text),
    }
}

/// A name for the GPUs of one kind.
fn gpu_name(gpu: &Value) -> Option<String> {
    let name = gpu.get("part").unwrap_or(gpu).as_str()?;
    let count = gpu.get("count").and_then(Value::as_u64).filter(|count| *count > 1);
    Some(count.map_or(name.to_owned(), |count| format!("{count}x {name}")))
}

/// The requests of a scenario for which the question can be answered: a serving workload for one
/// replica, with a limit on the time to the first token.
fn check_serving<'s>(
    root: &DocumentSection<'_>,
    scenario: &'s Scenario,
) -> Result<&'s Requests, ScenarioError> {
    const WANTED: &str = "a serving workload is wanted: {arrivals: {poisson: 5 req/s}, …}, {trace: …}, or users, \
                          {concurrency: 900, think_time: {mean: 20 s, cv: 1}, …}";
    let serving = scenario.workload.serving().ok_or_else(|| root.wrong("workload", WANTED))?;
    if serving.replicas > 1 {
        let wanted = "capacity counts machines with one engine each: leave it out";
        return Err(root.wrong("workload.replicas", wanted));
    }
    match scenario.slo.ttft {
        Some(_) => Ok(&serving.requests),
        None => Err(root.missing(
            "slo.ttft",
            "how long a request may wait for its first token: without a limit, one machine serves any load sooner or later",
        )),
    }
}

/// Reads `load` in the unit of `requests`; by default the load of `requests`.
fn read_load(section: &DocumentSection<'_>, requests: &Requests) -> Result<OfferedLoad, ScenarioError> {
    let unit = requests.load_unit();
    let amount = match unit {
        LoadUnit::Requests => {
            let text = section.get("load").and_then(Value::as_str);
            if text.is_some_and(|text| text.trim_end().ends_with("users")) {
                let other = if matches!(requests, Requests::Trace { .. }) { "trace" } else { "arrivals" };
                let wanted = format!(
                    "a load with its unit is wanted, like \"100 req/s\"; users need `workload.concurrency` in place of \
                     `{other}`"
                );
                return Err(section.wrong("load", &wanted));
            }
            let rate =
                section.quantity("load", ["a load", "100 req/s"], |load: &RequestsPerSec| load.get())?;
            rate.map(RequestsPerSec::get)
        }
        LoadUnit::Users => {
            let wrong = || section.wrong("load", "how many users, like \"900 users\", is wanted");
            let count = |value: &Value| value.as_str()?.strip_suffix("users")?.trim().parse::<u32>().ok();
            let users = |value| count(value).filter(|users| *users > 0).ok_or_else(wrong);
            section.get("load").map(users).transpose()?.map(f64::from)
        }
    };
    match amount {
        Some(amount) => Ok(OfferedLoad { amount, unit, recorded: None }),
        None => requests.offered_load()?.ok_or_else(|| {
            section.missing(
                "load",
                "the trace's requests come all at once: requests per second, like \"100 req/s\"",
            )
        }),
    }
}

/// Reads a percentage from `from` to `to`; returns it as a share.
fn read_share(
    section: &DocumentSection<'_>,
    key: &str,
    [from, to]: [f64; 2],
) -> Result<Option<f64>, ScenarioError> {
    let Some(value) = section.get(key) else { return Ok(None) };
    let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
    match percent.and_then(|number| number.trim().parse::<f64>().ok()).map(|percent| percent / 100.0) {
        Some(share) if (from..=to).contains(&share) => Ok(Some(share)),
        _ => {
            let [from, to] = [from, to].map(|share| (share * 100.0).round());
            Err(section.wrong(key, &format!("a share from \"{from} %\" to \"{to} %\" is wanted")))
        }
    }
}
