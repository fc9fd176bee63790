//! The rebalancer: it compares the plans and moves the engines to a better one.

use crate::clock::{SimTime, Tick};
use crate::serving::engine::request::RequestTotals;
use crate::serving::fleet::serve::FleetController;
use crate::serving::rebalance::demand::Demand;
use crate::serving::rebalance::forecast_tables::{ForecastTables, LASTING};
use crate::serving::rebalance::multi_plan_prices::{DeviceTimes, SwitchablePrices};
use crate::serving::schedule::replica::Replica;
use hwprofiles::{Bytes, MissingRate, Seconds};
use planner::{CostModel, Monitor, Moves, Placement, moved_sequences, moving_time};
use scenarios::Slo;

/// A plan that engines may follow.
#[derive(Debug, Clone)]
pub struct PlanAlternative {
    /// The placement of the model.
    pub placement: Placement,
    /// Blocks of the KV cache that the placement leaves room for.
    pub blocks: u64,
    /// Tables of its step times.
    pub forecasts: ForecastTables,
}

/// A move of engines to another plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanMove {
    /// When the engines stood still.
    pub at: SimTime,
    /// The numbers of the plans before and after.
    pub plans: [usize; 2],
    /// Bytes that crossed links for each engine.
    pub bytes: Bytes,
    /// How long the engines stood still.
    pub time: SimTime,
}

/// The record of a rebalancer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RebalanceRecord {
    /// How often it compared the plans.
    pub decisions: u64,
    /// The total time of these decisions, by its wall clock.
    pub spent: Seconds,
    /// The time of the longest decision.
    pub longest: Seconds,
    /// The moves that it made.
    pub moves: Vec<PlanMove>,
}

impl RebalanceRecord {
    /// Adds the record of another rebalancer.
    pub fn join(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.spent += other.spent;
        self.longest = self.longest.max(other.longest);
        self.moves.extend(other.moves);
        self.moves.sort_by_key(|one| one.at);
    }
}

/// Reads a wall clock.
pub type WallClock<'a> = &'a (dyn Fn() -> Seconds + Sync);

/// The time between two decisions. This and the shares below are our choice: moves are to be rare
/// and certain (docs/decisions/rebalancing.md).
const INTERVAL: Seconds = Seconds::new(1.0);

/// A plan is worth a move if its score is at most this share of the present plan's score.
const WORTH_A_MOVE: f64 = 0.9;

/// A plan that uses at most this share of every limit is kept.
const GOOD_ENOUGH: f64 = 0.8;

/// Controls engines that all follow one plan of several.
pub struct Rebalancer<'a> {
    cost_model: CostModel<'a>,
    alternatives: &'a [PlanAlternative],
    limits: Slo,
    /// When the machine enters which state, in ascending order, from zero on.
    states: &'a [(SimTime, usize)],
    /// For [`RebalanceRecord::longest`] alone. Without a clock nothing is rebalanced.
    clock: Option<WallClock<'a>>,
    monitor: Monitor,
    demand: Demand,
    /// The number of the present plan.
    plan: usize,
    last_decision: SimTime,
    /// The number of states that the machine has entered.
    entered: usize,
    record: RebalanceRecord,
}

impl<'a> Rebalancer<'a> {
    /// A rebalancer of engines that follow plan `plan` of `alternatives`, on a machine that enters
    /// one of its `states` at each of these times. `expected` is the demand until requests come.
    /// Without a clock the engines keep that plan.
    pub fn new(
        cost_model: CostModel<'a>,
        alternatives: &'a [PlanAlternative],
        plan: usize,
        states: &'a [(SimTime, usize)],
        limits: Slo,
        expected: Demand,
        clock: Option<WallClock<'a>>,
    ) -> Self {
        Self {
            cost_model,
            alternatives,
            limits,
            states,
            clock,
            monitor: Monitor::new(cost_model.machine.devices.len()),
            demand: expected,
            plan,
            last_decision: SimTime::ZERO,
            entered: 0,
            record: RebalanceRecord::default(),
        }
    }

    /// Its record so far.
    pub fn record(&self) -> &RebalanceRecord {
        &self.record
    }

    /// The number of a plan that is clearly better than the present one and worth the move, with
    /// what moves and the time of the move, if `held` sequences of so many tokens move too.
    fn decide(&self, held: [u64; 2]) -> Option<(usize, Moves, Seconds)> {
        let score = |alternative: &PlanAlternative| {
            alternative
                .forecasts
                .forecast(&self.demand, alternative.blocks, self.monitor.slowdown())
                .score(&self.limits)
        };
        let now = score(&self.alternatives[self.plan]);
        if self.limits.has_limits() && now <= GOOD_ENOUGH {
            return None;
        }
        let scores = self.alternatives.iter().map(score).enumerate();
        let (best, then) = scores.min_by(|one, other| one.1.total_cmp(&other.1))?;
        if then > now * WORTH_A_MOVE {
            return None;
        }
        let before = &self.alternatives[self.plan].placement;
        let moves = moved_sequences(self.cost_model, before, &self.alternatives[best].placement, held);
        let time = moving_time(self.cost_model, &moves)?;
        let gain = LASTING * (1.0 - then / now);
        (time <= gain).then_some((best, moves, time))
    }

    /// Observes the engines, and moves them if another plan is worth it.
    fn rebalance<P: SwitchablePrices>(
        &mut self,
        at: SimTime,
        replicas: &mut [Replica<P>],
    ) -> Result<(), MissingRate> {
        for replica in replicas.iter_mut() {
            for DeviceTimes { device, planned, measured } in replica.prices_mut().device_times()? {
                self.monitor.observe(device, planned, measured);
            }
        }
        let totals: RequestTotals = replicas.iter().map(Replica::totals).sum();
        let waiting = replicas.iter().map(|replica| replica.waiting() as u64).sum();
        self.demand.observe(at, totals, waiting, replicas.len() as u64);
        let pause = SimTime::rounding_up(LASTING, Tick::Picosecond);
        let settled = self.record.moves.last().is_none_or(|last| at >= last.at + pause);
        let Some(clock) = self.clock.filter(|_| self.demand.is_known() && settled) else { return Ok(()) };
        let fullest = replicas.iter().max_by_key(|replica| replica.held_tokens());
        let held = fullest.map_or([1, 0], Replica::held_sequences);
        let began = clock();
        let decided = self.decide(held);
        let took = clock() - began;
        self.record.spent += took;
        self.record.longest = self.record.longest.max(took);
        self.record.decisions += 1;
        if let Some((best, moves, time)) = decided {
            let time = SimTime::rounding_up(time, Tick::Picosecond);
            for replica in replicas.iter_mut() {
                replica.pause(at, time);
                replica.resize(self.alternatives[best].blocks);
                replica.prices_mut().switch_plan(best);
            }
            let (bytes, plans) = (moves.values().copied().sum(), [self.plan, best]);
            self.record.moves.push(PlanMove { at, plans, bytes, time });
            self.plan = best;
        }
        Ok(())
    }

    /// When the machine enters its next state, and when the next decision is due.
    fn due_times(&self) -> [Option<SimTime>; 2] {
        let state = self.states.get(self.entered).map(|(from, _)| *from);
        let interval = SimTime::rounding_up(INTERVAL, Tick::Picosecond);
        [state, self.clock.map(|_| self.last_decision + interval)]
    }
}

impl<P: SwitchablePrices> FleetController<P> for Rebalancer<'_> {
    fn due(&self) -> Option<SimTime> {
        self.due_times().into_iter().flatten().min()
    }

    fn act(&mut self, replicas: &mut [Replica<P>]) -> Result<(), MissingRate> {
        let Some(at) = FleetController::<P>::due(self) else { return Ok(()) };
        if let Some((from, state)) = self.states.get(self.entered)
            && *from == at
        {
            replicas.iter_mut().for_each(|replica| replica.prices_mut().enter_state(*state));
            self.entered += 1;
            return Ok(());
        }
        self.last_decision = at;
        self.rebalance(at, replicas)
    }
}
