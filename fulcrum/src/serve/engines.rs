//! The engines of a serving scenario: the plans that they may follow, on a machine that may change.

use super::engine_day::EngineDay;
use super::request_feed::{RequestFeed, asked_before};
use super::tables::DayTables;
use crate::error::{Error, OrError, Result};
use crate::pipeline::PreparedScenario;
use hwprofiles::Machine;
use planner::{CostModel, PhasePrograms, Placement};
use rayon::prelude::*;
use scenarios::{Formats, Model, Routing, Serving, Shift, ShiftChange, Slo};
use sim::serving::{
    Demand, EngineSettings, ForecastTables, MultiPlanPrices, PlanAlternative, RebalanceRecord, Rebalancer,
    Replica, Request, RequestSource, ResourceMeter, Router, ShiftedSource, WallClock, serve_fleet,
    serve_in_step,
};
use sim::{SimTime, Tick};

/// A plan that engines may follow.
pub(crate) struct EnginePlan {
    /// The load that it was made for.
    pub(crate) name: String,
    /// Where everything is.
    pub(crate) placement: Placement,
    /// The most tokens that a device computes at once; `None` where that is a step.
    pub(crate) micro_batch: Option<u64>,
    /// The engine with what the placement leaves room for.
    pub(crate) engine: EngineSettings,
}

/// Engines that are alike.
pub(crate) struct EngineFleet<'q> {
    scenario: &'q PreparedScenario,
    serving: &'q Serving,
    /// The scenario's model, in the load's beam search.
    model: Model,
    formats: Formats,
    limits: Slo,
    /// The machine as it was measured, then in each state that shifts bring it to.
    machines: Vec<Machine>,
    changes: StateChanges,
    plans: Vec<EnginePlan>,
    programs: Vec<PhasePrograms>,
    alternatives: Vec<PlanAlternative>,
}

impl<'q> EngineFleet<'q> {
    /// Engines that may follow any of `plans` on `machine`.
    pub(crate) fn new(
        scenario: &'q PreparedScenario,
        serving: &'q Serving,
        machine: Machine,
        formats: Formats,
        mut plans: Vec<EnginePlan>,
    ) -> Result<Self> {
        share_sequence_blocks(&mut plans);
        let lower = |plan: &EnginePlan| {
            let programs = PhasePrograms::lower(&machine, scenario.model(), &plan.placement).or_input()?;
            Ok(programs.in_micro_batches(plan.micro_batch))
        };
        let programs: Vec<_> = plans.iter().map(lower).collect::<Result<_>>()?;
        let slo = scenario.slo();
        let limits = slo;
        let (machines, changes) = machine_states(machine, &serving.shifts)?;
        let mut engines = Self {
            scenario,
            serving,
            model: Model { beams: serving.beams, ..scenario.model().clone() },
            formats,
            limits,
            machines,
            changes,
            plans,
            programs,
            alternatives: vec![],
        };
        if serving.rebalance {
            engines.alternatives = engines.alternatives()?;
        }
        Ok(engines)
    }

    /// The plans that they may follow.
    pub(crate) fn plans(&self) -> &[EnginePlan] {
        &self.plans
    }

    /// An engine that begins with plan `follows`.
    pub(crate) fn engine(&self, follows: usize) -> EngineSettings {
        self.plans[follows].engine.clone()
    }

    /// The programs of engines that follow plan `follows`.
    pub(crate) fn programs(&self, follows: usize) -> &PhasePrograms {
        &self.programs[follows]
    }

    fn cost_model(&self, state: usize) -> CostModel<'_> {
        CostModel { machine: &self.machines[state], model: &self.model, formats: &self.formats }
    }

    fn alternatives(&self) -> Result<Vec<PlanAlternative>> {
        let longest = self.scenario.model().max_positions;
        let all = self.plans.par_iter().zip(&self.programs).map(|(plan, programs)| {
            let forecasts =
                ForecastTables::new(self.cost_model(0), programs, &plan.engine, longest).or_input()?;
            Ok(PlanAlternative {
                placement: plan.placement.clone(),
                blocks: plan.engine.num_blocks,
                forecasts,
            })
        });
        all.collect()
    }

    /// How many engines there are.
    pub(crate) fn replicas(&self) -> u64 {
        self.serving.replicas
    }

    /// All requests, where they do not depend on answers.
    pub(crate) fn requests(&self) -> Result<Vec<Request>> {
        let mut feed = RequestFeed::new(self.serving, 0, 1, self.plans[0].engine.prefix_tokens)?;
        let all = std::iter::from_fn(|| feed.next()).collect();
        feed.wrong.map_or(Ok(all), Err).or_input()
    }

    /// A day of `requests` on `count` engines like `engine`, the ends of which are kept apart.
    pub(crate) fn pool_day(
        &self,
        requests: Vec<Request>,
        engine: EngineSettings,
        count: u64,
        tables: DayTables<'_>,
    ) -> Result<Vec<EngineDay<'_>>> {
        let cost_models = [self.cost_model(0)];
        let prices = || MultiPlanPrices::new(&self.programs, &cost_models, 0);
        let mut replicas: Vec<_> = (0..count).map(|_| Replica::new(engine.clone(), prices())).collect();
        let meters = || self.programs.iter().map(|it| ResourceMeter::new(cost_models[0], it)).collect();
        let one = || EngineDay::new(self.limits, tables, meters()).keeping_ends();
        let mut days: Vec<_> = (0..count).map(|_| one()).collect();
        let mut router = Router::new(self.serving.routing, self.serving.seed);
        serve_fleet(&mut requests.into_iter(), &mut replicas, &mut router, &mut (), &mut days).or_input()?;
        Ok(days)
    }

    /// A day on which they begin with plan `follows`, and go over to other plans where there is a
    /// clock: the record of each engine, and what was changed.
    pub(crate) fn day(
        &self,
        follows: usize,
        tables: DayTables<'_>,
        clock: Option<WallClock<'_>>,
    ) -> Result<(Vec<EngineDay<'_>>, RebalanceRecord)> {
        // A router that goes round in turns makes each engine a group that is simulated by itself,
        // unless engines make their steps together.
        let together = self.machines[0].division().data;
        let groups = match self.serving.routing {
            Routing::RoundRobin => self.serving.replicas.div_ceil(together),
            _ => 1,
        };
        let one = |share: u64| -> Result<(Vec<EngineDay<'_>>, RebalanceRecord)> {
            let engines = (self.serving.replicas / groups).max(1);
            let prefix_tokens = self.plans[follows].engine.prefix_tokens;
            let cost_models: Vec<_> = (0..self.machines.len()).map(|state| self.cost_model(state)).collect();
            let prices = || MultiPlanPrices::new(&self.programs, &cost_models, follows);
            let mut replicas: Vec<_> =
                (0..engines).map(|_| Replica::new(self.engine(follows), prices())).collect();
            let meters = || {
                let by_state = |programs| {
                    cost_models.iter().map(move |&cost_model| ResourceMeter::new(cost_model, programs))
                };
                self.programs.iter().flat_map(by_state).collect()
            };
            let mut days: Vec<_> =
                (0..engines).map(|_| EngineDay::new(self.limits, tables, meters())).collect();
            let asked = asked_before(self.serving, groups * engines, prefix_tokens);
            for request in asked {
                replicas.iter_mut().for_each(|replica| replica.remember(&request));
            }
            let mut feed = ShiftedSource::new(
                RequestFeed::new(self.serving, share, groups, prefix_tokens)?,
                &self.serving.shifts,
            );
            // Engines that share experts are one server: a request goes to the one with the fewest.
            let routing = if together > 1 { Routing::LeastRequests } else { self.serving.routing };
            let router = &mut Router::new(routing, self.serving.seed);
            let load = self.scenario.workload();
            let mut rebalancer = Rebalancer::new(
                self.cost_model(0),
                &self.alternatives,
                follows,
                &self.changes,
                self.limits,
                Demand::expected(load.prompt_tokens as f64, load.output_tokens as f64),
                clock,
            );
            let served = match together {
                1 => serve_fleet(&mut feed, &mut replicas, router, &mut rebalancer, &mut days),
                _ => serve_in_step(&mut feed, &mut replicas, router, &mut rebalancer, &mut days),
            };
            served.or_input()?;
            let record = rebalancer.record().clone();
            feed.into_inner().wrong.map_or(Ok((days, record)), Err).or_input()
        };
        let groups: Vec<_> = (0..groups).into_par_iter().map(one).collect::<Result<_>>()?;
        let (mut days, mut record) = (Vec::new(), RebalanceRecord::default());
        for (group, of_group) in groups {
            days.extend(group);
            record.join(of_group);
        }
        Ok((days, record))
    }
}

/// Gives all plans the blocks that a sequence takes in any of them, and the fewest sequences: an
/// engine goes over from one to the other with its sequences.
fn share_sequence_blocks(plans: &mut [EnginePlan]) {
    let Some((first, others)) = plans.split_first() else { return };
    let (mut sequence, mut fewest) = (first.engine.sequence.clone(), first.engine.max_num_seqs);
    for EnginePlan { engine, .. } in others {
        sequence.join(&engine.sequence);
        fewest = fewest.min(engine.max_num_seqs);
    }
    for EnginePlan { engine, .. } in plans {
        (engine.sequence, engine.max_num_seqs) = (sequence.clone(), fewest);
    }
}

/// The times at which a machine changes its state, and the state from then on.
type StateChanges = Vec<(SimTime, usize)>;

/// The machine in each of its states, beginning with none of its devices slower, and when it
/// changes between them.
fn machine_states(machine: Machine, shifts: &[Shift]) -> Result<(Vec<Machine>, StateChanges)> {
    let mut changes = Vec::new();
    for shift in shifts {
        let ShiftChange::Slower { device, .. } = &shift.change else { continue };
        if machine.device_named(device).is_none() {
            let known: Vec<_> = machine.devices.iter().map(|device| &*device.name).collect();
            return Err(Error::input(format!(
                "shifts: device '{device}' is none of {}'s: {}",
                machine.name,
                known.join(", ")
            )));
        }
        changes.extend([Some(shift.from), shift.until].into_iter().flatten());
    }
    changes.sort_by(|one, other| one.total_cmp(other));
    changes.dedup();
    let (mut machines, mut states) = (vec![machine], Vec::new());
    for at in changes {
        let mut changed = machines[0].clone();
        for shift in shifts.iter().filter(|s| s.from <= at && s.until.is_none_or(|until| at < until)) {
            if let ShiftChange::Slower { device, factor } = &shift.change
                && let Some(id) = changed.device_named(device)
            {
                changed.devices[id.0] = changed.devices[id.0].slower(*factor);
            }
        }
        states.push((SimTime::rounding_up(at, Tick::Picosecond), machines.len()));
        machines.push(changed);
    }
    Ok((machines, states))
}
