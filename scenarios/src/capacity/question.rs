//! How many machines a load takes, as a scenario asks it.
//!
//! ```yaml
//! capacity:
//!   load: 100 req/s                  # the workload's own where absent; of a closed loop so many users: 900 users
//!   growth: 40 %                     # a year
//!   years: 3
//!   attainment: 99 %                 # of the requests keep every limit
//!   duty: 60 %                       # of the time the load is there
//!   prices: {per_kwh: 0.09 USD, pue: 1.2, hosting: 160 EUR}
//!   currencies: {EUR: 1.08 USD on 2026-11-01}
//!   machines:
//!     - h100-sxm
//!     - {name: two of them, machine: {…}, set: {tensor_parallel: 2}, price: 250000 USD, power: 2.1 kW}
//! ```

use crate::capacity::currencies::Currencies;
use crate::capacity::prices::{Prices, read_prices};
use crate::input::document::Document;
use crate::input::error::ScenarioError;
use crate::input::section::Section;
use crate::load::arrivals::Requests;
use crate::load::offered_load::{Load, LoadUnit};
use crate::question::objective::Slo;
use crate::question::scenario::Scenario;
use hwprofiles::{Dollars, RequestsPerSec, Watts};
use serde_json::Value;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    /// Requests per second, or users, all together.
    pub load: Load,
    /// By which share the load rises from one year to the next.
    pub growth: f64,
    /// For how many years.
    pub years: u64,
    /// The share of requests that must keep every limit.
    pub attainment: f64,
    /// The share of the time in which the load is there.
    pub duty: f64,
    /// What things cost.
    pub prices: Prices,
    /// What other currencies are worth that prices are given in.
    pub currencies: Currencies,
    /// The machines that may be bought; at least one.
    pub machines: Vec<MachineOption>,
}

/// A machine that may be bought, and what is asked of it.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineOption {
    /// A name for people.
    pub name: String,
    /// The scenario on this machine.
    pub scenario: Scenario,
    /// What the whole machine costs, where that is not the sum of its parts.
    pub price: Option<Dollars>,
    /// What the whole machine draws when it is busy, where that is not the sum of its devices.
    pub power: Option<Watts>,
    /// The same while it waits.
    pub idle_power: Option<Watts>,
}

const KEYS: [&str; 8] = ["load", "growth", "years", "attainment", "duty", "prices", "currencies", "machines"];
const OPTION_KEYS: [&str; 6] = ["name", "machine", "set", "price", "power", "idle_power"];

impl Document {
    /// What the scenario asks under `capacity`.
    ///
    /// # Errors
    /// It asks nothing, something is wrong with it or with the scenario on one of its machines, no limit on the time to the first token
    /// is given, or the workload is no stream of requests.
    pub fn capacity(&self) -> Result<Capacity, ScenarioError> {
        let root = Section::root(&self.origin, &self.root)?;
        let section = root.section("capacity")?;
        let section =
            section.ok_or_else(|| root.missing("capacity", "{machines: [h100-sxm, l40s]} is wanted"))?;
        section.only(&KEYS)?;
        let currencies = Currencies::read(root.section("capacity.currencies")?.as_ref())?;
        let machines = self.options(&section, &currencies)?;
        let first = &machines[0].scenario;
        let load = load(&section, check(&root, first)?)?;
        let unit = |option: &MachineOption| Some(option.scenario.serving.as_ref()?.requests.unit());
        if let Some(other) = machines.iter().find(|option| unit(option) != Some(load.unit)) {
            let wanted =
                format!("{} is given another kind of load than the first: one is wanted", other.name);
            return Err(section.wrong("machines", &wanted));
        }
        Ok(Capacity {
            load,
            growth: share(&section, "growth", [-0.9, 10.0])?.unwrap_or(0.0),
            years: section.count("years", 30)?.unwrap_or(3),
            attainment: share(&section, "attainment", [0.5, 1.0])?.unwrap_or(0.99),
            duty: share(&section, "duty", [0.01, 1.0])?.unwrap_or(1.0),
            prices: read_prices(root.section("capacity.prices")?.as_ref(), first.costs, &currencies)?,
            currencies,
            machines,
        })
    }

    fn options(
        &self,
        section: &Section<'_>,
        currencies: &Currencies,
    ) -> Result<Vec<MachineOption>, ScenarioError> {
        const WANTED: &str =
            "a list of machines is wanted, each a name or {name: …, machine: …, set: {…}, price: …}";
        match section.get("machines") {
            None => Err(section.missing("machines", WANTED)),
            Some(Value::Array(all)) if !all.is_empty() => {
                let each = all.iter().enumerate();
                let options: Vec<_> = each
                    .map(|(index, value)| self.option(index, value, currencies))
                    .collect::<Result<_, _>>()?;
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

    fn option(
        &self,
        index: usize,
        value: &Value,
        currencies: &Currencies,
    ) -> Result<MachineOption, ScenarioError> {
        let path = format!("capacity.machines.{index}");
        let named = Value::Object([("machine".to_owned(), value.clone())].into_iter().collect());
        let entries = if value.is_string() { &named } else { value };
        let section = Section::at(&self.origin, &path, entries)?;
        section.only(&OPTION_KEYS)?;
        let mut document = self.clone();
        let machine = section.get("machine").or(self.root.get("machine"));
        let machine = machine.ok_or_else(|| {
            section.missing("machine", "a machine's name, its file, or its parts ({cpu: …, …})")
        })?;
        let name = match (section.text("name")?, machine.as_str()) {
            (Some(name), _) | (None, Some(name)) => name.to_owned(),
            (None, None) => return Err(section.missing("name", "a name for a machine of parts")),
        };
        let within = |error: ScenarioError| ScenarioError::Within {
            place: self.origin.place(&path),
            name: name.clone(),
            error: Box::new(error),
        };
        document.put("machine", machine).map_err(within)?;
        match section.get("set") {
            None => {}
            Some(Value::Object(settings)) => {
                for (key, value) in settings {
                    document.put(key, value).map_err(within)?;
                }
            }
            Some(_) => {
                return Err(section.wrong("set", "keys and values are wanted, like {tensor_parallel: 2}"));
            }
        }
        let power = |key| section.quantity(key, ["a power", "2.1 kW"], |power: &Watts| power.get());
        Ok(MachineOption {
            scenario: document.scenario().map_err(within)?,
            price: currencies.price(&section, "price")?,
            power: power("power")?,
            idle_power: power("idle_power")?,
            name,
        })
    }
}

/// The requests, where the question can be answered: they come and go, and how long they wait has a limit.
fn check<'s>(root: &Section<'_>, scenario: &'s Scenario) -> Result<&'s Requests, ScenarioError> {
    const WANTED: &str = "requests that come and go are wanted: {arrivals: {poisson: 5 req/s}, …}, {trace: …}, or users, \
                          {concurrency: 900, think_time: 20 s, …}";
    let serving = scenario.serving.as_ref().ok_or_else(|| root.wrong("workload", WANTED))?;
    if serving.replicas > 1 {
        let wanted = "machines are what is counted here, each with one engine: leave it out";
        return Err(root.wrong("workload.replicas", wanted));
    }
    match scenario.slo {
        Some(Slo { ttft: Some(_), .. }) => Ok(&serving.requests),
        _ => Err(root.missing(
            "slo.ttft",
            "how long a request may wait for its first token: without a limit, any load is served some day",
        )),
    }
}

/// The load that is asked about, counted as that of `requests` is, or theirs.
fn load(section: &Section<'_>, requests: &Requests) -> Result<Load, ScenarioError> {
    let unit = requests.unit();
    let asked = match unit {
        LoadUnit::Requests => {
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
    let amount = match asked {
        Some(amount) => amount,
        None => requests.load()?.ok_or_else(|| {
            section.missing(
                "load",
                "the trace's requests come all at once: requests per second, like \"100 req/s\"",
            )
        })?,
    };
    Ok(Load { amount, unit })
}

/// A share written in per cent, within `range`.
fn share(section: &Section<'_>, key: &str, [from, to]: [f64; 2]) -> Result<Option<f64>, ScenarioError> {
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
