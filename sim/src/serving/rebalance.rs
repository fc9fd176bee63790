//! Rebalancing: an engine that follows another plan when times, or requests, are no longer those that its plan was made for.
//!
//! Alternatives are made before the day begins, with tables of what their steps take ([`Forecasts`]). While the engines
//! work, a [`Rebalancer`] looks at them now and then: how long each device was busy against what was planned
//! ([`planner::Monitor`]), and which requests come ([`Demand`]). From these every alternative's times are forecast in
//! microseconds, and where one is clearly better than the present one, and moving its weights and KV cache over the links
//! costs less than it gains, the engines stand still for as long as that takes and go on with it.

mod demand;
mod forecasts;
mod staged;

pub use demand::Demand;
pub use forecasts::{Forecast, Forecasts};
pub use staged::Staged;

use super::batch::StepPrices;
use super::fleet::Steward;
use super::picos::Picos;
use super::replica::Replica;
use super::summary::Limits;
use hwprofiles::{Bytes, Missing, Ratio, Seconds};
use planner::{Monitor, Moves, Placement, Pricing, moved, moving_time};

/// A plan that engines may follow.
#[derive(Debug, Clone)]
pub struct Alternative {
    /// Where everything is.
    pub placement: Placement,
    /// Blocks of the KV cache that it leaves room for.
    pub blocks: u64,
    /// What its steps take.
    pub forecasts: Forecasts,
}

/// Engines went over to another plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// When they stood still.
    pub at: Picos,
    /// The plan before and after, by their number.
    pub plans: [usize; 2],
    /// Bytes that crossed links for each engine.
    pub bytes: Bytes,
    /// For how long.
    pub time: Picos,
}

/// What a rebalancer did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// How often it compared the plans.
    pub decisions: u64,
    /// How long that took, all together and at most, by the clock that it was given.
    pub spent: Seconds,
    /// Likewise.
    pub longest: Seconds,
    /// What came of them.
    pub moves: Vec<Move>,
}

impl Record {
    /// What other engines' rebalancer did besides.
    pub fn join(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.spent += other.spent;
        self.longest = self.longest.max(other.longest);
        self.moves.extend(other.moves);
        self.moves.sort_by_key(|one| one.at);
    }
}

/// Tells the time.
pub type Clock<'a> = &'a (dyn Fn() -> Seconds + Sync);

/// It looks so often.
const EVERY: Seconds = Seconds::new(1.0);

/// A plan is worth going over to where its forecast is so much better.
const BETTER: f64 = 0.9;

/// A plan that keeps every limit by so much is left alone.
const WELL: f64 = 0.8;

/// What is gained is expected to last so long: moving must not take longer than its share of that, and is not done again
/// before.
const LASTING: Seconds = Seconds::new(60.0);

/// Looks after engines that all follow one plan of several.
pub struct Rebalancer<'a> {
    pricing: Pricing<'a>,
    alternatives: &'a [Alternative],
    limits: Limits,
    /// From when on the machine is in which of its states; ascending, from zero on.
    states: &'a [(Picos, usize)],
    /// Tells the time, for [`Record::longest`] alone; `None` where nothing is to be rebalanced.
    clock: Option<Clock<'a>>,
    monitor: Monitor,
    demand: Demand,
    follows: usize,
    looked: Picos,
    /// How many of the states the machine has been in.
    entered: usize,
    record: Record,
}

impl<'a> Rebalancer<'a> {
    /// Engines that follow plan `follows` of `alternatives` on a machine that is in one of its `states` from each time on.
    /// Requests are `expected` to be so long. Without a clock they follow that plan all day.
    pub fn new(
        pricing: Pricing<'a>,
        alternatives: &'a [Alternative],
        follows: usize,
        states: &'a [(Picos, usize)],
        limits: Limits,
        expected: Demand,
        clock: Option<Clock<'a>>,
    ) -> Self {
        Self {
            pricing,
            alternatives,
            limits,
            states,
            clock,
            monitor: Monitor::new(pricing.machine.devices.len()),
            demand: expected,
            follows,
            looked: Picos::ZERO,
            entered: 0,
            record: Record::default(),
        }
    }

    /// What it did.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The number of the plan that is clearly better than the present one, and worth moving to.
    fn decide(&self, tokens: u64) -> Option<(usize, Moves, Seconds)> {
        let score = |alternative: &Alternative| {
            alternative
                .forecasts
                .of(&self.demand, alternative.blocks, self.monitor.slowdown())
                .score(&self.limits)
        };
        let now = score(&self.alternatives[self.follows]);
        if self.limits.any() && now <= WELL {
            return None;
        }
        let scores = self.alternatives.iter().map(score).enumerate();
        let (best, then) = scores.min_by(|one, other| one.1.total_cmp(&other.1))?;
        if then > now * BETTER {
            return None;
        }
        let before = &self.alternatives[self.follows].placement;
        let moves = moved(self.pricing, before, &self.alternatives[best].placement, tokens);
        let time = moving_time(self.pricing, &moves)?;
        let gain = LASTING * (1.0 - then / now);
        (time <= gain).then_some((best, moves, time))
    }

    fn look<P: Following>(&mut self, at: Picos, replicas: &mut [Replica<P>]) -> Result<(), Missing> {
        for replica in replicas.iter_mut() {
            for (device, planned, measured) in replica.prices_mut().busy()? {
                self.monitor.observe(device, planned, measured);
            }
        }
        let seen = replicas.iter().map(Replica::seen).sum();
        let waiting = replicas.iter().map(|replica| replica.waiting() as u64).sum();
        self.demand.observe(at, seen, waiting, replicas.len() as u64);
        let settled = self.record.moves.last().is_none_or(|last| at >= last.at + Picos::rounding_up(LASTING));
        let Some(clock) = self.clock.filter(|_| self.demand.is_known() && settled) else { return Ok(()) };
        let tokens = replicas.iter().map(Replica::held_tokens).max().unwrap_or(0);
        let began = clock();
        let decided = self.decide(tokens);
        let took = clock() - began;
        self.record.spent += took;
        self.record.longest = self.record.longest.max(took);
        self.record.decisions += 1;
        if let Some((best, moves, time)) = decided {
            let time = Picos::rounding_up(time);
            for replica in replicas.iter_mut() {
                replica.hold(at, time);
                replica.resize(self.alternatives[best].blocks);
                replica.prices_mut().follow(best);
            }
            let (bytes, plans) = (moves.values().copied().sum(), [self.follows, best]);
            self.record.moves.push(Move { at, plans, bytes, time });
            self.follows = best;
        }
        Ok(())
    }
}

/// Prices of engines that follow one plan of several on a machine in one of several states.
pub trait Following: StepPrices {
    /// From now on steps are those of that plan.
    fn follow(&mut self, plan: usize);

    /// From now on the machine is in that state.
    fn enter(&mut self, state: usize);

    /// How long the last step kept each device busy: as planned, and really.
    ///
    /// # Errors
    /// A rate that was not measured.
    fn busy(&mut self) -> Result<Vec<(hwprofiles::DeviceId, Seconds, Seconds)>, Missing>;
}

impl<P: Following> Steward<P> for Rebalancer<'_> {
    fn due(&self) -> Picos {
        let look = if self.clock.is_some() { self.looked + Picos::rounding_up(EVERY) } else { Picos::MAX };
        self.states.get(self.entered).map_or(look, |(from, _)| look.min(*from))
    }

    fn act(&mut self, replicas: &mut [Replica<P>]) -> Result<(), Missing> {
        let at = Steward::<P>::due(self);
        if let Some((from, state)) = self.states.get(self.entered)
            && *from == at
        {
            replicas.iter_mut().for_each(|replica| replica.prices_mut().enter(*state));
            self.entered += 1;
            return Ok(());
        }
        self.looked = at;
        self.look(at, replicas)
    }
}

/// Every device that is `factor` times as slow as `slowdown` says, where that is more than nothing.
pub(super) fn excess(slowdown: &[Ratio]) -> impl Iterator<Item = (usize, f64)> + '_ {
    slowdown.iter().map(|ratio| ratio.get()).enumerate().filter(|(_, factor)| (factor - 1.0).abs() > 1e-3)
}
