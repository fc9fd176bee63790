//! How many machines a load takes: on each that may be bought, days of more and fewer requests, and what they come to.

mod bought;
mod trial;

use crate::exit::{Failure, Outcome, Sort};
use crate::machines::Machines;
use crate::pipeline::Question;
use crate::serve::{Placed, ServedDay};
use anyhow::anyhow;
use hwprofiles::{DeviceKind, MemoryKind, Ratio};
use planner::{Pricing, Programs};
use rayon::prelude::*;
use reports::capacity::{
    Banded, Bottleneck, CAPACITY_VERSION, Candidate, CapacityReport, Figure, Fleet, Found, Running, Terms,
    Way, tornado,
};
use scenarios::{Capacity, Document, LoadUnit, MachineOption, Requests, Step, ThinkTime};
use trial::{Reached, Trial};

/// The answer to what `document` asks.
///
/// # Errors
/// Something is wrong with what is asked, or no machine keeps the limits at any load.
pub fn run(document: &Document) -> Outcome<CapacityReport> {
    let asked = document.capacity().or_input()?;
    let known = Machines::default();
    let questions: Vec<Question> = asked
        .machines
        .iter()
        .map(|option| Question::with(&option.scenario, &known).map_err(|failure| failure.of(&option.name)))
        .collect::<Outcome<_>>()?;
    let each = asked.machines.par_iter().zip(&questions);
    let found = each.map(|(option, question)| Search { asked: &asked, option, question }.run());
    let found: Vec<(Candidate, Option<Fleet>, Vec<Figure>)> = found.collect::<Outcome<_>>()?;
    let mut figures = bought::figures(&asked);
    let first = found[0].1;
    let mut machines = Vec::new();
    for (index, (mut candidate, fleet, more)) in found.into_iter().enumerate() {
        if let (Some(found), Some(fleet), Some(first)) =
            (&mut candidate.found, fleet, first.filter(|_| index > 0))
        {
            found.payback = Some(fleet.pays_back(&first));
        }
        machines.push(candidate);
        figures.extend(more);
    }
    if machines.iter().all(|machine| machine.found.is_none()) {
        let why = machines
            .iter()
            .map(|it| format!("{}: {}", it.name, it.unmet.as_deref().unwrap_or("nothing fits")));
        let why = why.collect::<Vec<_>>().join("; ");
        return Err(Failure::Infeasible(anyhow!(
            "no machine keeps the limits, however little is asked of it: {why}"
        )));
    }
    let report = CapacityReport {
        capacity: CAPACITY_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: questions[0].model.name.clone(),
        asked: words(&asked, &questions[0]),
        answer: vec![],
        unit: asked.load.unit.name().to_owned(),
        load: asked.load.amount,
        machines,
        figures,
    };
    Ok(report.answered())
}

fn words(asked: &Capacity, question: &Question) -> Vec<String> {
    let growth = match asked.growth {
        0.0 => String::new(),
        growth => format!(", {:+.0} % each year", growth * 100.0),
    };
    let limits = [("TTFT", question.slo.ttft), ("TPOT", question.slo.tpot)];
    let limits = limits.iter().filter_map(|(name, limit)| Some(format!("{name} within {}", (*limit)?)));
    let thinking = match question.serving.as_ref().map(|serving| &serving.requests) {
        Some(Requests::Closed { think, .. }) if *think != ThinkTime::NONE => {
            format!(", who think {} before each request,", think.mean())
        }
        _ => String::new(),
    };
    vec![
        format!(
            "{}: {}{thinking} for {} years{growth}, {:.0} % of the time",
            question.model.name,
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

/// What is asked of one machine.
struct Search<'a> {
    asked: &'a Capacity,
    option: &'a MachineOption,
    question: &'a Question,
}

impl Search<'_> {
    fn run(&self) -> Outcome<(Candidate, Option<Fleet>, Vec<Figure>)> {
        match self.searched() {
            // Weights that do not fit are no reason to say nothing of the others.
            Err(Failure::Infeasible(why)) => Ok((self.unmet("nothing", format!("{why:#}")), None, vec![])),
            Err(failure) => Err(failure.of(&self.option.name)),
            Ok(found) => Ok(found),
        }
    }

    fn unmet(&self, plan: &str, why: String) -> Candidate {
        let (name, plan) = (self.option.name.clone(), plan.to_owned());
        Candidate { name, plan, ways: vec![], found: None, unmet: Some(why) }
    }

    fn searched(&self) -> Outcome<(Candidate, Option<Fleet>, Vec<Figure>)> {
        let (option, question) = (self.option, self.question);
        let serving =
            question.serving.as_ref().ok_or_else(|| anyhow!("no requests come and go")).or_input()?;
        let trial = Trial::new(question, serving, self.asked.attainment)?;
        let (ways, best) = ways(&trial, Placed::ways(question)?)?;
        let (placed, reached) = match best {
            Ok(best) => best,
            Err(day) => {
                let little = match self.asked.load.unit {
                    LoadUnit::Requests => "hardly any load",
                    LoadUnit::Users => "a single user",
                };
                let why = format!("with {little} {}", trial.fails(&day.summary));
                return Ok((Candidate { ways, ..self.unmet(&day.plan, why) }, None, vec![]));
            }
        };
        let (price, figures) = bought::price(option, &placed.machine, &self.asked.prices)?;
        let power = bought::power(option, &placed.machine)?;
        let (most, day) = &reached.within;
        let bands = self.bands(&trial, &placed, *most, day)?;
        let load = self.asked.load;
        let machines = (load.amount / *most).ceil().max(1.0);
        let share = match load.unit {
            LoadUnit::Requests => load.amount / machines,
            LoadUnit::Users => (load.amount / machines).ceil(),
        };
        let (at_work, account) = with_account(trial.day(&placed, share)?)?;
        let running = bought::running(option, (price, power), *most, (share, &at_work.summary, &account));
        let requests = match load.unit {
            LoadUnit::Requests => 1.0,
            LoadUnit::Users => at_work.summary.requests_per_s / share,
        };
        let tokens = at_work.summary.output_tokens_per_s / at_work.summary.requests_per_s * requests;
        let fleet = Fleet { machine: running, terms: self.terms(tokens) };
        let found = self.found(&trial, &placed, &reached, &at_work, fleet, bands)?;
        let (name, plan) = (option.name.clone(), day.plan.clone());
        Ok((Candidate { name, plan, ways, found: Some(found), unmet: None }, Some(fleet), figures))
    }

    fn terms(&self, tokens_per_s: f64) -> Terms {
        let Capacity { growth, years, duty, prices, .. } = self.asked;
        Terms {
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

    /// How many times as long as expected everything may take, at the slow and the fast end of the rates' band, and the largest load
    /// of a machine then; `None` where it keeps the limits at none.
    fn bands(
        &self,
        trial: &Trial<'_>,
        placed: &Placed,
        most: f64,
        day: &ServedDay,
    ) -> Outcome<[(Ratio, Option<f64>); 2]> {
        let Placed { machine, formats, placement, .. } = placed;
        let model = &self.question.model;
        let programs = Programs::lower(machine, model, placement).or_input()?;
        let pricing = Pricing { machine, model, formats };
        let load = &self.question.workload;
        let decode = Step::decode((day.summary.mean_batch.ceil() as u64).max(1), load.context());
        let (decode, prefill) = (
            pricing.band(&programs.decode, &decode).or_input()?,
            pricing.band(&programs.prefill, &Step::prefill(1, load.prompt_tokens)).or_input()?,
        );
        let slow = if decode.1 > prefill.1 { decode.1 } else { prefill.1 };
        let fast = if decode.0 < prefill.0 { decode.0 } else { prefill.0 };
        let at = |slower: Ratio| -> Outcome<(Ratio, Option<f64>)> {
            let placed = Placed { machine: machine.slower(slower), ..placed.clone() };
            let reached = trial.largest(&placed, most / slower.get())?;
            Ok((slower, reached.ok().map(|reached| reached.within.0)))
        };
        Ok([at(slow)?, at(fast)?])
    }

    fn found(
        &self,
        trial: &Trial<'_>,
        Placed { machine, engines, .. }: &Placed,
        reached: &Reached,
        at_work: &ServedDay,
        fleet: Fleet,
        bands: [(Ratio, Option<f64>); 2],
    ) -> Outcome<Found> {
        let (most, day) = &reached.within;
        let account = day.summary.account.clone().unwrap_or_default();
        let ends: [Option<Running>; 2] =
            bands.map(|(slower, load)| load.map(|load| fleet.machine.slower(slower, load)));
        let banded = |of: &dyn Fn(&Fleet) -> f64| {
            let end = |machine: Option<Running>| {
                machine.map_or(f64::INFINITY, |machine| of(&Fleet { machine, ..fleet }))
            };
            Banded { value: of(&fleet), slow: end(ends[0]), fast: end(ends[1]) }
        };
        let count = |fleet: &Fleet| fleet.machines(fleet.terms.load) as f64;
        let machines = banded(&count);
        let gpus = machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
        let cxl = machine.memories.iter().filter(|memory| memory.kind == MemoryKind::Cxl);
        let needed = fleet.machines(fleet.terms.load);
        let loads = bands.map(|(_, load)| load.unwrap_or(0.0));
        Ok(Found {
            largest_load: Banded { value: *most, slow: loads[0], fast: loads[1] },
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

/// How the largest load is reached, or the day of hardly any where none is.
type Best = Result<(Placed, Reached), Box<ServedDay>>;

/// The largest load of each way to use a machine's GPUs, and the way of the largest of them: of equal ones the first, whose engines
/// have the fewest GPUs. Where none keeps the limits, the day of the last, whose GPUs work together most.
fn ways(trial: &Trial<'_>, placed: Vec<Placed>) -> Outcome<(Vec<Way>, Best)> {
    let tried = placed.into_par_iter().map(|placed| {
        let start = trial.one_at_a_time() * placed.engines as f64;
        Ok((trial.largest(&placed, start)?, placed))
    });
    let tried: Vec<_> = tried.collect::<Outcome<_>>()?;
    let way = |(result, _): &(Result<Reached, ServedDay>, Placed)| match result {
        Ok(reached) => Way {
            plan: reached.within.1.plan.clone(),
            largest_load: Some(reached.within.0),
            fails: reached.beyond.as_ref().map(|(_, day)| trial.fails(&day.summary)),
        },
        Err(day) => {
            Way { plan: day.plan.clone(), largest_load: None, fails: Some(trial.fails(&day.summary)) }
        }
    };
    let ways = if tried.len() > 1 { tried.iter().map(way).collect() } else { vec![] };
    let better = |best: Best, (result, placed): (Result<Reached, ServedDay>, Placed)| match (best, result) {
        (Ok(best), Ok(reached)) if reached.within.0 <= best.1.within.0 => Ok(best),
        (_, Ok(reached)) => Ok((placed, reached)),
        (Ok(best), Err(_)) => Ok(best),
        (Err(_), Err(day)) => Err(Box::new(day)),
    };
    let mut tried = tried.into_iter();
    let none = || anyhow!("there is no way to use the machine");
    let (first, placed) = tried.next().ok_or_else(none).or_input()?;
    let first = first.map(|reached| (placed, reached)).map_err(Box::new);
    Ok((ways, tried.fold(first, better)))
}

fn with_account(day: ServedDay) -> Outcome<(ServedDay, sim::serving::Account)> {
    let account = day.summary.account.clone();
    let account = account.ok_or_else(|| anyhow!("a day without an account")).or_failed()?;
    Ok((day, account))
}
