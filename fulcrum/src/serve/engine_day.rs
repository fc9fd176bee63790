//! The record of one engine's day.

use super::tables::DayTables;
use hwprofiles::Missing;
use sim::serving::{Effort, End, Limits, Meter, Picos, Picture, Series, Served, Steps, Tally, Watch};

/// The record of one engine's day.
pub(crate) struct EngineDay<'a> {
    /// Sums over its requests and steps.
    pub(crate) tally: Tally,
    /// What its steps took of the machine, by plan and state of the machine: see
    /// [`Steps::course`].
    meters: Vec<Meter<'a>>,
    /// Every request, where a table of them is wanted.
    pub(crate) served: Option<Vec<Served>>,
    /// What happened when, where that is wanted.
    pub(crate) series: Option<Series>,
    /// What happened in a window, where that is wanted.
    pub(crate) picture: Option<Picture>,
}

impl<'a> EngineDay<'a> {
    /// An empty record of what `tables` need.
    pub(crate) fn new(limits: Limits, tables: DayTables<'_>, meters: Vec<Meter<'a>>) -> Self {
        Self {
            tally: Tally::new(limits),
            meters,
            served: tables.requests.map(|_| Vec::new()),
            series: tables.series.map(|(_, every)| Series::new(Picos::rounding_up(every))),
            picture: tables.picture.map(|(_, window)| Picture::new(window.picos())),
        }
    }

    /// What its steps took of the machine.
    pub(crate) fn effort(&self) -> Result<Effort, Missing> {
        let mut effort = Effort::default();
        for meter in &self.meters {
            effort.join(&meter.effort()?);
        }
        Ok(effort)
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

impl Watch for EngineDay<'_> {
    fn steps(&mut self, steps: &Steps<'_>) {
        self.tally.steps(steps);
        self.meters[steps.course].steps(steps);
        if let Some(series) = &mut self.series {
            series.steps(steps);
        }
        if let Some(picture) = &mut self.picture {
            picture.steps(steps);
        }
    }

    fn gaps(&mut self, gap: Picos, times: u64) {
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

    fn end(&mut self, end: &End) {
        self.tally.end(end);
        if let (Some(all), End::Served(served)) = (&mut self.served, end) {
            all.push(*served);
        }
        if let Some(picture) = &mut self.picture {
            picture.end(end);
        }
    }
}
