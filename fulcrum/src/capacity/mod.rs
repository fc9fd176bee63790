//! How many machines a load takes, and what they cost: on each machine that may be bought, days of
//! more and of fewer requests are simulated.

mod load_trial;
mod machine_cost;

use crate::error::{Error, OrError, Result};
use crate::pipeline::{CachedCatalog, PreparedScenario};
use crate::serve::{ServedDay, ServingPlacement};
use hwprofiles::{DeviceKind, MemoryKind, Ratio};
use load_trial::{LargestLoad, LoadSearch, LoadTrial};
use machine_cost::MachineCost;
use planner::{CostModel, PhasePrograms};
use rayon::prelude::*;
use reports::capacity::{
    BandedValue, Bottleneck, CAPACITY_VERSION, Candidate, CapacityReport, CapacityResult, Figure, Fleet,
    FleetMachine, FleetTerms, GpuArrangement, sensitivity,
};
use scenarios::{
    CapacityQuestion, Document, EngineProfile, LoadUnit, MachineOption, Requests, Step, ThinkTime,
};

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
/// let found = report.machines[0].result.as_ref().expect("an L4 keeps the limits");
/// assert!(found.machines.value >= 1.0 && found.total_cost.value > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The document is wrong, or no machine keeps the limits at any load.
pub fn capacity(document: &Document) -> Result<CapacityReport> {
    let question = document.capacity().or_input()?;
    let catalog = CachedCatalog::default();
    let prepare = |option: &MachineOption| {
        let scenario = PreparedScenario::cached(&option.scenario, &catalog);
        scenario.map_err(|error| error.within(&option.name))
    };
    let scenarios: Vec<_> = question.machines.iter().map(prepare).collect::<Result<_>>()?;
    let each = question.machines.iter().zip(&scenarios);
    let mut costs: Vec<_> = each
        .map(|(option, scenario)| MachineCost::new(option, &scenario.machines()[0], &question.prices))
        .collect();
    // If all are unknown, nothing can be compared.
    if costs.iter().all(Result::is_err)
        && let Err(unknown) = costs.swap_remove(0)
    {
        return Err(unknown.within(&question.machines[0].name));
    }
    let found = question.machines.par_iter().zip(&scenarios).zip(&costs).map(|((option, scenario), cost)| {
        match cost {
            Ok(cost) => MachineSearch { question: &question, option, scenario, cost }.run(),
            // A machine without a price or a power does not hide the others.
            Err(unknown) => Ok(SearchResult::unmet(option, "not asked", unknown.to_string())),
        }
    });
    let found: Vec<_> = found.collect::<Result<_>>()?;
    let mut figures = machine_cost::shared_figures(&question);
    let first = found[0].fleet;
    let mut machines = Vec::new();
    for (index, SearchResult { mut candidate, fleet, figures: own }) in found.into_iter().enumerate() {
        let first = first.filter(|_| index > 0);
        if let (Some(found), Some(fleet), Some(first)) = (&mut candidate.result, fleet, first) {
            found.payback = Some(fleet.pays_back(&first));
        }
        machines.push(candidate);
        figures.extend(own);
    }
    if machines.iter().all(|machine| machine.result.is_none()) {
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
        question: question_in_words(&question, &scenarios),
        answer: vec![],
        unit: question.load.unit.name().to_owned(),
        load: question.load.amount,
        machines,
        figures,
    };
    Ok(report.with_answer())
}

/// The question, as the report repeats it, and what is assumed of its machines.
fn question_in_words(question: &CapacityQuestion, scenarios: &[PreparedScenario]) -> Vec<String> {
    let scenario = &scenarios[0];
    let growth = match question.growth {
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
    let mut lines = vec![
        format!(
            "{}: {}{thinking} for {} years{growth}, {:.0} % of the time",
            scenario.model().name,
            question.load,
            question.years,
            question.duty * 100.0
        ),
        format!(
            "{:.4} % of the requests: {}",
            question.attainment * 100.0,
            limits.collect::<Vec<_>>().join(", ")
        )
        .replace(".0000 %", " %"),
        format!("simulated with {}", engines_in_words(scenarios)),
    ];
    for (option, scenario) in question.machines.iter().zip(scenarios) {
        if let Some(machine) = scenario.machines().iter().find(|machine| !machine.assumed.is_empty()) {
            lines.push(format!("{}: assumed {}", option.name, machine.assumed.join("; ")));
        }
    }
    lines
}

/// The engines' names, with their versions where they were asked for.
fn engines_in_words(scenarios: &[PreparedScenario]) -> String {
    let mut engines: Vec<String> = Vec::new();
    for scenario in scenarios {
        let EngineProfile { engine, version, .. } = &scenario.engine().profile;
        let name = version.as_ref().map_or(engine.clone(), |version| format!("{engine} {version}"));
        if !engines.contains(&name) {
            engines.push(name);
        }
    }
    engines.join(" and ")
}

/// The question for one machine.
struct MachineSearch<'a> {
    question: &'a CapacityQuestion,
    option: &'a MachineOption,
    scenario: &'a PreparedScenario,
    cost: &'a MachineCost,
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
    /// A machine that is left out: why.
    fn unmet(option: &MachineOption, plan: &str, why: String) -> Self {
        let (name, plan) = (option.name.clone(), plan.to_owned());
        let candidate = Candidate { name, plan, arrangements: vec![], result: None, unmet: Some(why) };
        Self { candidate, fleet: None, figures: vec![] }
    }
}

impl MachineSearch<'_> {
    fn run(&self) -> Result<SearchResult> {
        match self.search() {
            // A machine on which the weights do not fit does not hide the others.
            Err(Error::Infeasible(why)) => Ok(SearchResult::unmet(self.option, "nothing", why.to_string())),
            Err(error) => Err(error.within(&self.option.name)),
            Ok(found) => Ok(found),
        }
    }

    fn search(&self) -> Result<SearchResult> {
        let (option, scenario) = (self.option, self.scenario);
        let serving = scenario.serving().ok_or_else(|| {
            Error::input(
                "workload: capacity needs requests that come and go: `arrivals`, `concurrency` or `trace`",
            )
        })?;
        let trial = LoadTrial::new(scenario, serving, self.question.attainment)?;
        let (arrangements, best) = best_of(&trial, ServingPlacement::alternatives(scenario)?)?;
        let (placed, reached) = match best {
            BestPlacement::Within(placed, reached) => (*placed, *reached),
            BestPlacement::Nowhere(day) => {
                let little = match self.question.load.unit {
                    LoadUnit::Requests => "hardly any load",
                    LoadUnit::Users => "a single user",
                };
                let why = format!("with {little} {}", trial.fails(&day.summary));
                let mut result = SearchResult::unmet(option, &day.plan, why);
                result.candidate.arrangements = arrangements;
                return Ok(result);
            }
        };
        let (most, day) = &reached.within;
        let bands = self.bands(&trial, &placed, *most, day)?;
        let load = self.question.load;
        let machines = (load.amount / *most).ceil().max(1.0);
        let share = match load.unit {
            LoadUnit::Requests => load.amount / machines,
            LoadUnit::Users => (load.amount / machines).ceil(),
        };
        let (at_work, account) = with_account(trial.day(&placed, share)?)?;
        let load_of_a_day =
            machine_cost::LoadedDay { load: share, summary: &at_work.summary, account: &account };
        let running = machine_cost::running(option, self.cost, *most, load_of_a_day);
        let requests = match load.unit {
            LoadUnit::Requests => 1.0,
            LoadUnit::Users => at_work.summary.requests_per_s / share,
        };
        let tokens = at_work.summary.output_tokens_per_s / at_work.summary.requests_per_s * requests;
        let fleet = Fleet { machine: running, terms: self.terms(tokens) };
        require_countable(&fleet)?;
        let result = self.result(&trial, &placed, &reached, &at_work, fleet, bands)?;
        let (name, plan) = (option.name.clone(), day.plan.clone());
        let candidate = Candidate { name, plan, arrangements, result: Some(result), unmet: None };
        Ok(SearchResult { candidate, fleet: Some(fleet), figures: self.cost.figures.clone() })
    }

    fn terms(&self, tokens_per_s: f64) -> FleetTerms {
        let CapacityQuestion { growth, years, duty, prices, .. } = self.question;
        FleetTerms {
            load: self.question.load.amount,
            growth: *growth,
            years: *years,
            duty: *duty,
            tokens_per_s,
            lifetime: prices.lifetime.value,
            price_per_kwh: prices.per_kwh.value,
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

    fn result(
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
            bottlenecks: Bottleneck::ranked(machine, &day.engine, *engines, &day.summary, &account),
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
            sensitivity: sensitivity(&fleet, ends),
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
fn best_of(
    trial: &LoadTrial<'_>,
    placements: Vec<ServingPlacement>,
) -> Result<(Vec<GpuArrangement>, BestPlacement)> {
    let tried = placements.into_par_iter().map(|placed| {
        let start = trial.one_at_a_time() * placed.engines as f64;
        Ok((trial.largest(&placed, start)?, placed))
    });
    let tried: Vec<_> = tried.collect::<Result<_>>()?;
    // Formats are told with the best one, unless it differs in them.
    let alike = tried.windows(2).all(|pair| pair[0].1.formats == pair[1].1.formats);
    let named = |placed: &ServingPlacement, day: &ServedDay| match alike {
        true => placed.chosen.clone(),
        false => day.plan.clone(),
    };
    let arrangement = |(search, placed): &(LoadSearch, ServingPlacement)| match search {
        LoadSearch::Within(reached) => GpuArrangement {
            plan: named(placed, &reached.within.1),
            largest_load: Some(reached.within.0),
            fails: reached.beyond.as_ref().map(|(_, day)| trial.fails(&day.summary)),
        },
        LoadSearch::Nowhere(day) => GpuArrangement {
            plan: named(placed, day),
            largest_load: None,
            fails: Some(trial.fails(&day.summary)),
        },
    };
    let arrangements = if tried.len() > 1 { tried.iter().map(arrangement).collect() } else { vec![] };
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
    Ok((
        arrangements,
        best.ok_or_else(|| Error::input("no placement of the model on the machine was found"))?,
    ))
}

fn with_account(day: ServedDay) -> Result<(ServedDay, sim::serving::Account)> {
    let account = day.summary.account.clone();
    let account = account.ok_or_else(|| Error::failed("a day without an account"))?;
    Ok((day, account))
}

/// Refuses a load for which machines cannot be counted any more.
fn require_countable(fleet: &Fleet) -> Result<()> {
    const MOST_MACHINES: u64 = 1_000_000_000;
    let most = fleet.years().iter().map(|year| year.machines).max().unwrap_or(0);
    match most <= MOST_MACHINES {
        true => Ok(()),
        false => Err(Error::input(format!(
            "capacity.load: with its growth it takes more than {MOST_MACHINES} machines, of which each takes {:.1} of it: \
             ask for less",
            fleet.machine.largest_load
        ))),
    }
}
