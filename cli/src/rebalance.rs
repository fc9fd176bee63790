//! What rebalancing is worth: the day with it, and with every plan that it could have followed all day.

use crate::day::Day;
use crate::engines::{Course, Engines};
use crate::exit::{Failure, Outcome};
use crate::pipeline::{Planned, Question};
use crate::serve::Tables;
use hwprofiles::{Bytes, Ratio, Seconds};
use planner::{Placement, Pricing};
use rayon::prelude::*;
use scenarios::Slo;
use serde_json::{Value, json};
use sim::serving::{Engine, Record, Tally};
use std::fmt;
use std::sync::Arc;

/// What it came to.
pub struct Rebalanced {
    /// Which plan it began with.
    began: String,
    /// What the rebalancer did.
    record: Record,
    /// SLO attainment with it.
    with: f64,
    /// By plan: its name, and SLO attainment where it is followed all day.
    without: Vec<(String, f64)>,
}

/// Batches that plans are made for, and how much longer contexts may become.
const BATCHES: [u64; 4] = [1, 8, 32, 128];
const LONGER: [u64; 2] = [1, 8];

/// Devices are to be this much slower.
const SLOWER: f64 = 2.0;

/// Adds plans for other loads than that of the scenario, and for slower devices, that take no more than the share `utilization`
/// of any memory; without those that are there already or leave no room for an `engine`.
pub fn add_courses(
    courses: &mut Vec<Course>,
    question: &Question,
    pricing: Pricing<'_>,
    utilization: f64,
    engine: &(dyn Fn(&Placement) -> Outcome<Option<Engine>> + Sync),
) -> Outcome<()> {
    let mut machine = pricing.machine.clone();
    for memory in &mut machine.memories {
        memory.capacity.value = Bytes::new((memory.capacity.value.as_f64() * utilization) as u64);
    }
    let slower = machine.device_ids().map(|device| {
        let mut changed = machine.clone();
        changed.devices[device.0] =
            changed.devices[device.0].slower(Ratio::new(SLOWER).unwrap_or(Ratio::ONE));
        (format!(", {} {SLOWER} × slower", machine.device(device).name), changed)
    });
    let machines: Vec<_> = std::iter::once((String::new(), machine.clone())).chain(slower).collect();
    let mut wanted = Vec::new();
    for (note, machine) in &machines {
        for batch in BATCHES {
            for longer in LONGER {
                let mut workload = question.workload;
                let most = question.model.max_positions - workload.output_tokens;
                workload.prompt_tokens = (workload.prompt_tokens * longer).min(most);
                workload.batch = batch;
                let name = format!("{batch} × {} tokens{note}", workload.prompt_tokens);
                wanted.push((name, machine, workload));
            }
        }
    }
    let planned = wanted.into_par_iter().map(|(name, machine, workload)| -> Outcome<Option<Course>> {
        let mut question = Question { workload, slo: Slo::default(), ..question.clone() };
        (question.machines, question.identities) = (Arc::from([machine.clone()]), None);
        question.formats.allowed = vec![*pricing.formats];
        let placement = match question.plan() {
            Ok(Planned { placement, .. }) => placement,
            Err(Failure::Infeasible(_)) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        Ok(engine(&placement)?.map(|engine| Course { name, placement, engine }))
    });
    for course in planned.collect::<Outcome<Vec<_>>>()?.into_iter().flatten() {
        if courses.iter().all(|other| other.placement != course.placement) {
            courses.push(course);
        }
    }
    Ok(())
}

/// SLO attainment of a day.
fn attainment(days: &[Day<'_>]) -> f64 {
    let mut all: Option<Tally> = None;
    for day in days {
        match &mut all {
            Some(all) => all.join(&day.tally),
            None => all = Some(day.tally.clone()),
        }
    }
    all.map_or(0.0, |tally| tally.summary(0, 0).slo_attainment)
}

impl Rebalanced {
    /// A day with rebalancing, what came of it, and the same day with every plan alone.
    pub fn day<'e>(engines: &'e Engines<'_>, tables: Tables<'_>) -> Outcome<(Vec<Day<'e>>, Self)> {
        let start = std::time::Instant::now();
        let clock = move || Seconds::new(start.elapsed().as_secs_f64());
        let (days, record) = engines.day(0, tables, Some(&clock))?;
        let all = (0..engines.courses().len()).into_par_iter();
        let without = all.map(|follows| -> Outcome<_> {
            let (days, _) = engines.day(follows, Tables::default(), None)?;
            Ok((engines.courses()[follows].name.clone(), attainment(&days)))
        });
        let without: Vec<_> = without.collect::<Outcome<_>>()?;
        let rebalanced =
            Self { began: engines.courses()[0].name.clone(), record, with: attainment(&days), without };
        Ok((days, rebalanced))
    }

    fn best(&self) -> (&str, f64) {
        let best = self.without.iter().reduce(|best, one| if one.1 > best.1 { one } else { best });
        best.map_or(("", 0.0), |(name, share)| (name, *share))
    }

    /// The numbers as JSON; without the time that decisions took, which is another every time.
    pub fn json(&self) -> Value {
        let moves: Vec<_> = self
            .record
            .moves
            .iter()
            .map(|one| {
                let names = one.plans.map(|plan| &*self.without[plan].0);
                json!({
                    "at_s": one.at.to_seconds().get(), "from": names[0], "to": names[1],
                    "bytes": one.bytes.get(), "time_s": one.time.to_seconds().get(),
                })
            })
            .collect();
        let plans: Vec<_> = self
            .without
            .iter()
            .map(|(name, share)| json!({ "plan": name, "slo_attainment": share }))
            .collect();
        json!({
            "slo_attainment": self.with, "best_plan": self.best().0, "best_plan_slo_attainment": self.best().1,
            "decisions": self.record.decisions, "moves": moves, "plans": plans,
        })
    }
}

impl fmt::Display for Rebalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { decisions, spent, longest, moves } = &self.record;
        let mean = *spent / (*decisions).max(1) as f64;
        writeln!(f, "rebalancing: {decisions} decisions, {mean} each, {longest} at most")?;
        for one in moves {
            let to = &self.without[one.plans[1]].0;
            let (at, time) = (one.at.to_seconds(), one.time.to_seconds());
            writeln!(f, "  at {at}: to the plan for {to} ({} moved in {time})", one.bytes)?;
        }
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let (best, share) = self.best();
        writeln!(f, "  within the limits: {}", percent(self.with))?;
        writeln!(f, "    {} with the plan for {} all day", percent(self.without[0].1), self.began)?;
        writeln!(f, "    {} with the best of {} plans, for {best}", percent(share), self.without.len())
    }
}
