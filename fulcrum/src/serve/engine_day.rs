//! The record of one engine's day.

use super::tables::DayTables;
use hwprofiles::MissingRate;
use scenarios::Slo;
use sim::serving::{
    EngineObserver, ObservedSteps, RequestOutcome, ResourceMeter, ResourceUse, Series, ServedRequest,
    ServingTimeline, SummaryCollector,
};
use sim::{SimTime, Tick};

/// The record of one engine's day.
pub(crate) struct EngineDay<'a> {
    /// Sums over its requests and steps.
    pub(crate) tally: SummaryCollector,
    /// What its steps took of the machine, by plan and state of the machine: see
    /// [`ObservedSteps::price_set`].
    meters: Vec<ResourceMeter<'a>>,
    /// The ends of its requests, where they wait for another engine's.
    ends: Option<Vec<RequestOutcome>>,
    /// Every request, where a table of them is wanted.
    pub(crate) served: Option<Vec<ServedRequest>>,
    /// What happened when, where that is wanted.
    pub(crate) series: Option<Series>,
    /// What happened in a window, where that is wanted.
    pub(crate) picture: Option<ServingTimeline>,
}

impl<'a> EngineDay<'a> {
    /// An empty record of what `tables` need.
    pub(crate) fn new(limits: Slo, tables: DayTables<'_>, meters: Vec<ResourceMeter<'a>>) -> Self {
        Self {
            tally: SummaryCollector::new(limits),
            meters,
            ends: None,
            served: (tables.requests.is_some() || tables.keeps_requests).then(Vec::new),
            series: tables
                .series
                .map(|(_, every)| Series::new(SimTime::rounding_up(every, Tick::Picosecond))),
            picture: tables.picture.map(|(_, window)| ServingTimeline::new(window.sim_times())),
        }
    }

    /// What its steps took of the machine.
    pub(crate) fn resource_use(&self) -> Result<ResourceUse, MissingRate> {
        let mut used = ResourceUse::default();
        for meter in &self.meters {
            used.join(&meter.resource_use()?);
        }
        Ok(used)
    }

    /// Joins the record of another engine, its meters left out.
    pub(crate) fn join(&mut self, other: Self) {
        self.tally.join(&other.tally);
        if let (Some(all), Some(one)) = (&mut self.served, other.served) {
            all.extend(one);
        }
        if let (Some(all), Some(one)) = (&mut self.series, other.series) {
            all.join(one);
        }
    }
}

impl EngineObserver for EngineDay<'_> {
    fn steps(&mut self, steps: &ObservedSteps<'_>) {
        self.tally.steps(steps);
        self.meters[steps.price_set].steps(steps);
        if let Some(series) = &mut self.series {
            series.steps(steps);
        }
        if let Some(picture) = &mut self.picture {
            picture.steps(steps);
        }
    }

    fn gaps(&mut self, gap: SimTime, times: u64) {
        self.tally.gaps(gap, times);
    }

    fn preempted(&mut self) {
        self.tally.preempted();
    }

    fn swapped(&mut self, out: u64, back: u64) {
        self.tally.swapped(out, back);
    }

    fn stored(&mut self, blocks: u64, evicted: u64) {
        self.tally.stored(blocks, evicted);
    }

    fn fetched(&mut self, blocks: u64) {
        self.tally.fetched(blocks);
    }

    fn end(&mut self, end: &RequestOutcome) {
        match &mut self.ends {
            Some(ends) => ends.push(end.clone()),
            None => self.tell(end),
        }
    }
}

impl EngineDay<'_> {
    /// The same record, which keeps the ends of requests apart.
    pub(crate) fn keeping_ends(self) -> Self {
        Self { ends: Some(vec![]), ..self }
    }

    /// The ends that wait for another engine's.
    pub(crate) fn take_ends(&mut self) -> Vec<RequestOutcome> {
        self.ends.take().unwrap_or_default()
    }

    /// Records the end of a request.
    pub(crate) fn tell(&mut self, end: &RequestOutcome) {
        self.tally.end(end);
        if let (Some(all), RequestOutcome::Served(served)) = (&mut self.served, end) {
            all.push(*served);
        }
        if let Some(picture) = &mut self.picture {
            picture.end(end);
        }
    }
}
