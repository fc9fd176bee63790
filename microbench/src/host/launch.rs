//! The cost of starting a team and waiting for its end.

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::late_points::late_points;
use crate::method::record::{MeasurementRecord, threads};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use hwprofiles::{Host, Seconds};
use kernels::Pool;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One fork-join of an empty operator by each team, with its members awake, as in a chain of
/// kernels.
#[derive(Debug)]
pub(crate) struct LaunchExperiment {
    teams: Vec<(usize, SampleSeries)>,
}

impl LaunchExperiment {
    /// For all teams of the rig.
    pub fn new(rig: &Rig<'_>) -> Self {
        Self { teams: rig.teams.iter().map(|pool| (pool.members(), SampleSeries::default())).collect() }
    }
}

/// Kernels share work as items that free members take, so the empty operator has items too.
fn fork_join(pool: &Pool, count: &AtomicUsize) {
    pool.each(pool.members(), |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
}

impl Experiment for LaunchExperiment {
    fn name(&self) -> String {
        "fork-joins".to_owned()
    }

    fn points(&self) -> usize {
        self.teams.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let (members, series) = &mut self.teams[point];
        let count = AtomicUsize::new(0);
        if series.is_empty() {
            fork_join(&rig.teams[point], &count);
            let kernel = || format!("a fork-join of {}", threads(*members));
            expect(kernel, count.load(Ordering::Relaxed) as f64, *members as f64, 0.0)?;
        }
        series.visit(rig, || fork_join(&rig.teams[point], &count));
        Ok(())
    }

    fn doubtful(&self) -> Vec<usize> {
        // A larger team has more members to wake and to wait for.
        let median = |(_, series): &(usize, SampleSeries)| Some(series.summary()?.median);
        late_points(&self.teams, median, |other, team| other.0 >= team.0)
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        for team in &mut host.teams {
            let series = self.teams.iter().find(|(members, _)| *members == team.threads);
            let Some(summary) = series.and_then(|(_, series)| series.summary()) else { continue };
            team.launch = record.sourced(&threads(team.threads), Seconds::new(summary.median), summary);
        }
    }
}
