//! What rebalancing is worth: the day with it, and the day with each plan that it could have
//! followed all the time.

use super::engine_day::EngineDay;
use super::engines::{EngineFleet, EnginePlan};
use super::tables::DayTables;
use crate::error::{Error, Result};
use crate::pipeline::{PreparedScenario, ResolvedPlan};
use hwprofiles::{Bytes, Ratio, Seconds};
use planner::{CostModel, Placement};
use rayon::prelude::*;
use scenarios::Workload;
use serde_json::{Value, json};
use sim::serving::{EngineSettings, RebalanceRecord, SummaryCollector};

/// What rebalancing came to.
pub struct RebalancedDay {
    /// The name of the plan that the day began with.
    pub first_plan: String,
    /// What the rebalancer did.
    pub record: RebalanceRecord,
    /// SLO attainment with rebalancing.
    pub slo_attainment: f64,
    /// By plan: its name, and the SLO attainment where it is followed all day.
    pub by_plan: Vec<(String, f64)>,
}

/// Batches that plans are made for.
const BATCHES: [u64; 4] = [1, 8, 32, 128];

/// How many times as long as the scenario's the prompts of a plan are.
const LONGER: [u64; 2] = [1, 8];

/// How much slower a device is in the plans for slow devices.
const SLOWER: f64 = 2.0;

/// Adds plans for other loads than the scenario's, and for slower devices. They take no more than
/// the share `utilization` of any memory. A plan that is there already, or that leaves no room for
/// an `engine`, is left out.
pub(crate) fn add_plans(
    plans: &mut Vec<EnginePlan>,
    scenario: &PreparedScenario,
    cost_model: CostModel<'_>,
    utilization: f64,
    engine: &(dyn Fn(&Placement) -> Result<Option<EngineSettings>> + Sync),
) -> Result<()> {
    let mut machine = cost_model.machine.clone();
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
                let load = *scenario.workload();
                let most = scenario.model().max_positions - load.output_tokens;
                let prompt_tokens = (load.prompt_tokens * longer).min(most);
                let workload = Workload { batch, prompt_tokens, ..load };
                let name = format!("{batch} × {} tokens{note}", workload.prompt_tokens);
                wanted.push((name, machine, workload));
            }
        }
    }
    let planned = wanted.into_par_iter().map(|(name, machine, workload)| -> Result<Option<EnginePlan>> {
        let other = scenario.with_workload(workload).on(machine.clone(), *cost_model.formats);
        let (plan, placement) = match other.plan_of_engine() {
            Ok(ResolvedPlan { plan, placement, .. }) => (plan, placement),
            Err(Error::Infeasible(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let micro_batch = scenario.micro_batch_of(&plan);
        Ok(engine(&placement)?.map(|engine| EnginePlan { name, placement, micro_batch, engine }))
    });
    for plan in planned.collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        if plans.iter().all(|other| other.placement != plan.placement) {
            plans.push(plan);
        }
    }
    Ok(())
}

/// SLO attainment over the days of several engines.
fn attainment(days: &[EngineDay<'_>]) -> f64 {
    let mut all: Option<SummaryCollector> = None;
    for day in days {
        match &mut all {
            Some(all) => all.join(&day.tally),
            None => all = Some(day.tally.clone()),
        }
    }
    all.map_or(0.0, |tally| tally.summary(0, 0).slo_attainment)
}

impl RebalancedDay {
    /// The engines' records of a day with rebalancing, and what it was worth beside each plan
    /// alone.
    pub(crate) fn simulate<'e>(
        engines: &'e EngineFleet<'_>,
        tables: DayTables<'_>,
    ) -> Result<(Vec<EngineDay<'e>>, Self)> {
        let start = std::time::Instant::now();
        let clock = move || Seconds::new(start.elapsed().as_secs_f64());
        let (days, record) = engines.day(0, tables, Some(&clock))?;
        let all = (0..engines.plans().len()).into_par_iter();
        let by_plan = all.map(|follows| -> Result<_> {
            let (days, _) = engines.day(follows, DayTables::default(), None)?;
            Ok((engines.plans()[follows].name.clone(), attainment(&days)))
        });
        let by_plan: Vec<_> = by_plan.collect::<Result<_>>()?;
        let (first_plan, slo_attainment) = (engines.plans()[0].name.clone(), attainment(&days));
        Ok((days, Self { first_plan, record, slo_attainment, by_plan }))
    }

    /// The name and the SLO attainment of the plan that would have been the best to follow all day.
    pub fn best_plan(&self) -> (&str, f64) {
        let best = self.by_plan.iter().reduce(|best, one| if one.1 > best.1 { one } else { best });
        best.map_or(("", 0.0), |(name, share)| (name, *share))
    }

    /// The numbers as JSON. The time that decisions took is left out: it differs from run to run.
    pub fn to_json(&self) -> Value {
        let moves: Vec<_> = self
            .record
            .moves
            .iter()
            .map(|one| {
                let names = one.plans.map(|plan| &*self.by_plan[plan].0);
                json!({
                    "at_s": one.at.to_seconds().get(), "from": names[0], "to": names[1],
                    "bytes": one.bytes.get(), "time_s": one.time.to_seconds().get(),
                })
            })
            .collect();
        let plans: Vec<_> = self
            .by_plan
            .iter()
            .map(|(name, share)| json!({ "plan": name, "slo_attainment": share }))
            .collect();
        let (best, best_share) = self.best_plan();
        json!({
            "slo_attainment": self.slo_attainment, "best_plan": best, "best_plan_slo_attainment": best_share,
            "decisions": self.record.decisions, "moves": moves, "plans": plans,
        })
    }
}
