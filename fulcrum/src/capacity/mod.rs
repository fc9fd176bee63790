//! How many machines a load takes, and what they cost: on each machine that may be bought, days of
//! more and of fewer requests are simulated.

mod load_trial;
mod machine_cost;

use crate::error::{Error, OrError, Result};
use crate::pipeline::{MachineCache, ModelCache, PreparedScenario};
use crate::serve::{ServedDay, ServingPlacement};
use hwprofiles::{DeviceKind, MemoryKind, Ratio};
use load_trial::{LargestLoad, LoadSearch, LoadTrial};
use planner::{CostModel, PhasePrograms};
use rayon::prelude::*;
use reports::capacity::{
    BandedValue, Bottleneck, CAPACITY_VERSION, Candidate, CapacityReport, Figure, Fleet, CapacityResult, FleetMachine, FleetTerms,
    GpuArrangement, tornado,
};
use scenarios::{CapacityQuestion, Document, LoadUnit, MachineOption, Requests, Step, ThinkTime};

/// Says which machine serves the load of `document` within its limits, how many of them, and what
/// that costs.
///
/// ```
/// let document = scenarios::Document::from_yaml(
///     "scenario",
///     "{model: llama-3.2-1b, engine: vllm, slo: {ttft: 100 ms, tpot: 20 ms},
///       workload: {arrivals: {poisson: 20 req/s}, requests: 100, prompt_tokens: 64,
///                  output_tokens: 4},
///       capacity: {load: 2000 req/s, years: 2, machines: [l4]}}",
/// )?;
/// let report = fulcrum::capacity(&document)?;
/// let found = report.machines[0].found.as_ref().expect("an L4 keeps the limits");
/// assert!(found.machines.value >= 1.0 && found.total_cost.value > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The document is wrong, or no machine keeps the limits at any load.
pub fn capacity(document: &Document) -> Result<CapacityReport> {
    let asked = document.capacity().or_input()?;
    let (machines, models) = (MachineCache::default(), ModelCache::default());
    let prepare = |option: &MachineOption| {
        let scenario = PreparedScenario::cached(&option.scenario, &machines, &models);
        scenario.map_err(|error| error.within(&option.name))
    };
    let scenarios: Vec<_> = asked.machines.iter().map(prepare).collect::<Result<_>>()?;
    let each = asked.machines.par_iter().zip(&scenarios);
    let found = each.map(|(option, scenario)| MachineSearch { asked: &asked, option, scenario }.run());
    let found: Vec<_> = found.collect::<Result<_>>()?;
    let mut figures = machine_cost::shared_figures(&asked);
    let first = found[0].fleet;
    let mut machines = Vec::new();
    for (index, SearchResult { mut candidate, fleet, figures: own }) in found.into_iter().enumerate() {
        let first = first.filter(|_| index > 0);
        if let (Some(found), Some(fleet), Some(first)) = (&mut candidate.found, fleet, first) {
            found.payback = Some(fleet.pays_back(&first));
        }
        machines.push(candidate);
        figures.extend(own);
    }
    if machines.iter().all(|machine| machine.found.is_none()) {
        let why = machines
            .iter()
            .map(|it| format!("{}: {}", it.name, it.unmet.as_deref().unwrap_or("nothing fits")));
        let why = why.collect::<Vec<_>>().join("; ");
        return Err(Error::infeasible(format!(
            "no machine keeps the limits, however little is asked of it: {why}"
        )));
    }
    let report = CapacityReport {
        capacity: CAPACITY_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: scenarios[0].model().name.clone(),
        asked: question_in_words(&asked, &scenarios[0]),
        answer: vec![],
        unit: asked.load.unit.name().to_owned(),
        load: asked.load.amount,
        machines,
        figures,
    };
    Ok(report.answered())
}

/// The question, as the report repeats it.
fn question_in_words(asked: &CapacityQuestion, scenario: &PreparedScenario) -> Vec<String> {
    let growth = match asked.growth {
        0.0 => String::new(),
        growth => format!(", {:+.0} % each year", growth * 100.0),
    };
    let slo = scenario.slo();
    let limits = [("TTFT", slo.ttft), ("TPOT", slo.tpot)];
    let limits = limits.iter().filter_map(|(name, limit)| Some(format!("{name} within {}", (*limit)?)));
    let thinking = match scenario.serving().map(|serving| &serving.requests) {
        Some(Requests::Closed { think, .. }) if *think != ThinkTime::NONE => {
            format!(", who think {} before each request,", think.mean())
        }
        _ => String::new(),
    };
    vec![
        format!(
            "{}: {}{thinking} for {} years{growth}, {:.0} % of the time",
            scenario.model().name,
            asked.load,
            asked.years,
            asked.duty * 100.0
        ),
        format!(
            "{:.4} % of the requests: {}",
            asked.attainment * 100.0,
            limits.collect::<Vec<_>>().join(", ")
        )
        .replace(".0000 %", " %"),
    ]
}

/// The question for one machine.
struct MachineSearch<'a> {
    asked: &'a CapacityQuestion,
    option: &'a MachineOption,
    scenario: &'a PreparedScenario,
}

/// What came of one machine.
struct SearchResult {
    candidate: Candidate,
    /// The machines that serve the load, where one keeps the limits.
    fleet: Option<Fleet>,
    /// Where the machine's price comes from.
    figures: Vec<Figure>,
}

impl SearchResult {
    /// A machine that does not keep the limits.
    fn without_fleet(candidate: Candidate) -> Self {
        Self { candidate, fleet: None, figures: vec![] }
    }
}

impl MachineSearch<'_> {
    fn run(&self) -> Result<SearchResult> {
        match self.search() {
            // A machine on which the weights do not fit does not hide the others.
            Err(Error::Infeasible(why)) => {
                Ok(SearchResult::without_fleet(self.unmet("nothing", why.to_string())))
            }
            Err(error) => Err(error.within(&self.option.name)),
            Ok(found) => Ok(found),
        }
    }

    fn unmet(&self, plan: &str, why: String) -> Candidate {
        let (name, plan) = (self.option.name.clone(), plan.to_owned());
        Candidate { name, plan, ways: vec![], found: None, unmet: Some(why) }
    }

    fn search(&self) -> Result<SearchResult> {
        let (option, scenario) = (self.option, self.scenario);
        let serving = scenario.serving().ok_or_else(|| Error::input("no requests come and go"))?;
        let trial = LoadTrial::new(scenario, serving, self.asked.attainment)?;
        let (ways, best) = best_of(&trial, ServingPlacement::alternatives(scenario)?)?;
        let (placed, reached) = match best {
            BestPlacement::Within(placed, reached) => (*placed, *reached),
            BestPlacement::Nowhere(day) => {
                let little = match self.asked.load.unit {
                    LoadUnit::Requests => "hardly any load",
                    LoadUnit::Users => "a single user",
                };
                let why = format!("with {little} {}", trial.fails(&day.summary));
                let candidate = Candidate { ways, ..self.unmet(&day.plan, why) };
                return Ok(SearchResult::without_fleet(candidate));
            }
        };
        let (price, figures) = machine_cost::price(option, &placed.machine, &self.asked.prices)?;
        let power = machine_cost::power(option, &placed.machine)?;
        let (most, day) = &reached.within;
        let bands = self.bands(&trial, &placed, *most, day)?;
        let load = self.asked.load;
        let machines = (load.amount / *most).ceil().max(1.0);
        let share = match load.unit {
            LoadUnit::Requests => load.amount / machines,
            LoadUnit::Users => (load.amount / machines).ceil(),
        };
        let (at_work, account) = with_account(trial.day(&placed, share)?)?;
        let load_of_a_day =
            machine_cost::LoadedDay { load: share, summary: &at_work.summary, account: &account };
        let running = machine_cost::running(option, price, power, *most, load_of_a_day);
        let requests = match load.unit {
            LoadUnit::Requests => 1.0,
            LoadUnit::Users => at_work.summary.requests_per_s / share,
        };
        let tokens = at_work.summary.output_tokens_per_s / at_work.summary.requests_per_s * requests;
        let fleet = Fleet { machine: running, terms: self.terms(tokens) };
        let found = self.found(&trial, &placed, &reached, &at_work, fleet, bands)?;
        let (name, plan) = (option.name.clone(), day.plan.clone());
        let candidate = Candidate { name, plan, ways, found: Some(found), unmet: None };
        Ok(SearchResult { candidate, fleet: Some(fleet), figures })
    }

    fn terms(&self, tokens_per_s: f64) -> FleetTerms {
        let CapacityQuestion { growth, years, duty, prices, .. } = self.asked;
        FleetTerms {
            load: self.asked.load.amount,
            growth: *growth,
            years: *years,
            duty: *duty,
            tokens_per_s,
            lifetime: prices.lifetime.value,
            per_kwh: prices.per_kwh.value,
            pue: prices.pue.value,
            hosting: prices.hosting.value,
        }
    }

    /// At the slow and at the fast end of the rates' band: how many times as long as expected
    /// everything takes, and the largest load of a machine then; `None` where it keeps the limits
    /// at no load.
    fn bands(
        &self,
        trial: &LoadTrial<'_>,
        placed: &ServingPlacement,
        most: f64,
        day: &ServedDay,
    ) -> Result<[(Ratio, Option<f64>); 2]> {
        let ServingPlacement { machine, formats, placement, .. } = placed;
        let model = self.scenario.model();
        let programs = PhasePrograms::lower(machine, model, placement).or_input()?;
        let cost_model = CostModel { machine, model, formats };
        let load = self.scenario.workload();
        let decode = Step::decode((day.summary.mean_batch.ceil() as u64).max(1), load.context());
        let (decode, prefill) = (
            cost_model.band(&programs.decode, &decode).or_input()?,
            cost_model.band(&programs.prefill, &Step::prefill(1, load.prompt_tokens)).or_input()?,
        );
        let slow = if decode.1 > prefill.1 { decode.1 } else { prefill.1 };
        let fast = if decode.0 < prefill.0 { decode.0 } else { prefill.0 };
        let at = |slower: Ratio| -> Result<(Ratio, Option<f64>)> {
            let placed = ServingPlacement { machine: machine.slower(slower), ..placed.clone() };
            let load = match trial.largest(&placed, most / slower.get())? {
                LoadSearch::Within(reached) => Some(reached.within.0),
                LoadSearch::Nowhere(_) => None,
            };
            Ok((slower, load))
        };
        Ok([at(slow)?, at(fast)?])
    }

    fn found(
        &self,
        trial: &LoadTrial<'_>,
        ServingPlacement { machine, engines, .. }: &ServingPlacement,
        reached: &LargestLoad,
        at_work: &ServedDay,
        fleet: Fleet,
        bands: [(Ratio, Option<f64>); 2],
    ) -> Result<CapacityResult> {
        let (most, day) = &reached.within;
        let account = day.summary.account.clone().unwrap_or_default();
        let ends: [Option<FleetMachine>; 2] =
            bands.map(|(slower, load)| load.map(|load| fleet.machine.slower(slower, load)));
        let banded = |figure: &dyn Fn(&Fleet) -> f64| {
            let end = |machine: Option<FleetMachine>| {
                machine.map_or(f64::INFINITY, |machine| figure(&Fleet { machine, ..fleet }))
            };
            BandedValue { value: figure(&fleet), slow: end(ends[0]), fast: end(ends[1]) }
        };
        let count = |fleet: &Fleet| fleet.machines(fleet.terms.load) as f64;
        let machines = banded(&count);
        let gpus = machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
        let cxl = machine.memories.iter().filter(|memory| memory.kind == MemoryKind::Cxl);
        let needed = fleet.machines(fleet.terms.load);
        let loads = bands.map(|(_, load)| load.unwrap_or(0.0));
        Ok(CapacityResult {
            largest_load: BandedValue { value: *most, slow: loads[0], fast: loads[1] },
            requests_per_s: day.summary.requests_per_s,
            beyond: reached.beyond.as_ref().map(|(load, _)| *load),
            slo_attainment: [Some(&reached.within), reached.beyond.as_ref()]
                .map(|tried| tried.map(|(_, day)| day.summary.slo_attainment)),
            requests: day.summary.requests.completed,
            fails: reached.beyond.as_ref().map(|(_, day)| trial.fails(&day.summary)),
            bottlenecks: Bottleneck::all(machine, &day.engine, *engines, &day.summary, &account),
            machines,
            utilization: at_work.summary.busy_share,
            price: fleet.machine.price.get(),
            gpus: needed * gpus.map(|gpu| gpu.ranks()).sum::<u64>(),
            cxl_bytes: needed * cxl.map(|memory| memory.capacity.value.get()).sum::<u64>(),
            energy_per_token_j: fleet.energy_per_token().get(),
            cost_per_token: banded(&|fleet| fleet.per_token().get()),
            years: fleet.years(),
            total_cost: banded(&|fleet| fleet.total().get()),
            payback: None,
            sensitivity: tornado(&fleet, ends),
            curve: reached.curve.clone(),
        })
    }
}

/// The placement that reaches the largest load.
enum BestPlacement {
    /// The placement, and its largest load.
    Within(Box<ServingPlacement>, Box<LargestLoad>),
    /// No placement keeps the limits; the day of hardly any load on the last one.
    Nowhere(Box<ServedDay>),
}

/// The largest load of each way to use a machine's GPUs, and the best of them. Of equal ones the
/// first is best, whose engines have the fewest GPUs. Where none keeps the limits, the day is that
/// of the last, whose GPUs work together most.
fn best_of(trial: &LoadTrial<'_>, placements: Vec<ServingPlacement>) -> Result<(Vec<GpuArrangement>, BestPlacement)> {
    let tried = placements.into_par_iter().map(|placed| {
        let start = trial.one_at_a_time() * placed.engines as f64;
        Ok((trial.largest(&placed, start)?, placed))
    });
    let tried: Vec<_> = tried.collect::<Result<_>>()?;
    let way = |(search, _): &(LoadSearch, ServingPlacement)| match search {
        LoadSearch::Within(reached) => GpuArrangement {
            plan: reached.within.1.plan.clone(),
            largest_load: Some(reached.within.0),
            fails: reached.beyond.as_ref().map(|(_, day)| trial.fails(&day.summary)),
        },
        LoadSearch::Nowhere(day) => {
            GpuArrangement { plan: day.plan.clone(), largest_load: None, fails: Some(trial.fails(&day.summary)) }
        }
    };
    let ways = if tried.len() > 1 { tried.iter().map(way).collect() } else { vec![] };
    let mut best: Option<BestPlacement> = None;
    for (search, placed) in tried {
        let better = match (&best, search) {
            (Some(BestPlacement::Within(_, known)), LoadSearch::Within(reached))
                if reached.within.0 <= known.within.0 =>
            {
                continue;
            }
            (_, LoadSearch::Within(reached)) => BestPlacement::Within(Box::new(placed), reached),
            (Some(BestPlacement::Within(..)), LoadSearch::Nowhere(_)) => continue,
            (_, LoadSearch::Nowhere(day)) => BestPlacement::Nowhere(day),
        };
        best = Some(better);
    }
    Ok((ways, best.ok_or_else(|| Error::input("there is no way to use the machine"))?))
}

fn with_account(day: ServedDay) -> Result<(ServedDay, sim::serving::Account)> {
    let account = day.summary.account.clone();
    let account = account.ok_or_else(|| Error::failed("a day without an account"))?;
    Ok((day, account))
}
