//! The engines of a serving scenario: what they run, on a machine that may change while they do.

use crate::day::Day;
use crate::exit::{Failure, Outcome, Sort};
use crate::feed::Feed;
use crate::pipeline::Question;
use crate::serve::Tables;
use anyhow::anyhow;
use hwprofiles::Machine;
use planner::{Placement, Pricing, Programs};
use rayon::prelude::*;
use scenarios::{Change, Formats, Routing, Serving, Shift};
use sim::serving::{
    Alternative, Clock, Demand, Engine, Forecasts, Limits, Meter, Picos, Rebalancer, Record, Replica, Router,
    Shifted, Staged, serve_fleet,
};

/// A plan that the engines may follow.
pub struct Course {
    /// What it was made for.
    pub name: String,
    /// Where everything is.
    pub placement: Placement,
    /// The engine beside it.
    pub engine: Engine,
}

/// Engines alike.
pub struct Engines<'q> {
    question: &'q Question,
    serving: &'q Serving,
    formats: Formats,
    limits: Limits,
    /// The machine as it was measured, then in the states that shifts bring it to, and when it comes to them.
    machines: Vec<Machine>,
    states: Changes,
    courses: Vec<Course>,
    programs: Vec<Programs>,
    alternatives: Vec<Alternative>,
}

impl<'q> Engines<'q> {
    /// Engines that may follow any of `courses` on `machine`.
    pub fn new(
        question: &'q Question,
        serving: &'q Serving,
        machine: Machine,
        formats: Formats,
        courses: Vec<Course>,
    ) -> Outcome<Self> {
        let lower =
            |course: &Course| Programs::lower(&machine, &question.model, &course.placement).or_input();
        let programs: Vec<_> = courses.iter().map(lower).collect::<Outcome<_>>()?;
        let limits = Limits { ttft: question.slo.ttft, tpot: question.slo.tpot };
        let (machines, states) = states(machine, &serving.shifts)?;
        let mut engines = Self {
            question,
            serving,
            formats,
            limits,
            machines,
            states,
            courses,
            programs,
            alternatives: vec![],
        };
        if serving.rebalance {
            engines.alternatives = engines.alternatives()?;
        }
        Ok(engines)
    }

    /// The plans that they may follow.
    pub fn courses(&self) -> &[Course] {
        &self.courses
    }

    /// An engine that begins with plan `follows`.
    pub fn engine(&self, follows: usize) -> Engine {
        self.courses[follows].engine.clone()
    }

    /// What engines compute that follow it.
    pub fn programs(&self, follows: usize) -> &Programs {
        &self.programs[follows]
    }

    fn pricing(&self, state: usize) -> Pricing<'_> {
        Pricing { machine: &self.machines[state], model: &self.question.model, formats: &self.formats }
    }

    fn alternatives(&self) -> Outcome<Vec<Alternative>> {
        let longest = self.question.model.max_positions;
        let all = self.courses.par_iter().zip(&self.programs).map(|(course, programs)| {
            let forecasts = Forecasts::new(self.pricing(0), programs, &course.engine, longest).or_input()?;
            Ok(Alternative {
                placement: course.placement.clone(),
                blocks: course.engine.num_blocks,
                forecasts,
            })
        });
        all.collect()
    }

    /// A day on which they begin with plan `follows`, and go over to others where there is a clock: what each wrote down,
    /// and what was changed.
    pub fn day(
        &self,
        follows: usize,
        tables: Tables<'_>,
        clock: Option<Clock<'_>>,
    ) -> Outcome<(Vec<Day<'_>>, Record)> {
        // In turns, engines have nothing to do with each other: each is a group by itself.
        let groups = if self.serving.routing == Routing::RoundRobin { self.serving.replicas } else { 1 };
        let one = |share: u64| -> Outcome<(Vec<Day<'_>>, Record)> {
            let engines = self.serving.replicas / groups;
            let pricings: Vec<_> = (0..self.machines.len()).map(|state| self.pricing(state)).collect();
            let prices = || Staged::new(&self.programs, &pricings, follows);
            let mut replicas: Vec<_> =
                (0..engines).map(|_| Replica::new(self.engine(follows), prices())).collect();
            let meters = || {
                let of = |programs| pricings.iter().map(move |&pricing| Meter::new(pricing, programs));
                self.programs.iter().flat_map(of).collect()
            };
            let mut days: Vec<_> = (0..engines).map(|_| Day::new(self.limits, tables, meters())).collect();
            let mut feed = Shifted::new(Feed::of(self.serving, share, groups)?, &self.serving.shifts);
            let mut router = Router::new(self.serving.routing, self.serving.seed);
            let load = &self.question.workload;
            let mut rebalancer = Rebalancer::new(
                self.pricing(0),
                &self.alternatives,
                follows,
                &self.states,
                self.limits,
                Demand::expected(load.prompt_tokens as f64, load.output_tokens as f64),
                clock,
            );
            serve_fleet(&mut feed, &mut replicas, &mut router, &mut rebalancer, &mut days).or_input()?;
            let record = rebalancer.record().clone();
            feed.into_inner().wrong.map_or(Ok((days, record)), Err).or_input()
        };
        let groups: Vec<_> = (0..groups).into_par_iter().map(one).collect::<Outcome<_>>()?;
        let (mut days, mut record) = (Vec::new(), Record::default());
        for (group, more) in groups {
            days.extend(group);
            record.join(more);
        }
        Ok((days, record))
    }
}

/// From when on a machine is in which of its states.
type Changes = Vec<(Picos, usize)>;

/// The machine, then as it is while devices are slower, and from when on it is which.
fn states(machine: Machine, shifts: &[Shift]) -> Outcome<(Vec<Machine>, Changes)> {
    let mut changes = Vec::new();
    for shift in shifts {
        let Change::Slower { device, .. } = &shift.change else { continue };
        if machine.device_named(device).is_none() {
            let known: Vec<_> = machine.devices.iter().map(|device| &*device.name).collect();
            return Err(Failure::Input(anyhow!(
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
            if let Change::Slower { device, factor } = &shift.change
                && let Some(id) = changed.device_named(device)
            {
                changed.devices[id.0] = changed.devices[id.0].slower(*factor);
            }
        }
        states.push((Picos::rounding_up(at), machines.len()));
        machines.push(changed);
    }
    Ok((machines, states))
}
