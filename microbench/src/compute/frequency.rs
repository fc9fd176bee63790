//! The real clock frequency of the cores.

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::record::{MeasurementRecord, threads, without_launch};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use hwprofiles::{Hertz, Host, Presence};

/// A chain of additions, one per cycle, on every core of each team. It measures the frequency also
/// in virtual machines, which show no such register.
#[derive(Debug)]
pub(crate) struct FrequencyExperiment {
    teams: Vec<(usize, SampleSeries)>,
}

/// Additions of one call: some hundred microseconds.
const ADDITIONS: u64 = 1 << 20;

impl FrequencyExperiment {
    /// For all teams of the rig.
    pub fn new(rig: &Rig<'_>) -> Self {
        Self { teams: rig.teams.iter().map(|pool| (pool.members(), SampleSeries::default())).collect() }
    }
}

impl Experiment for FrequencyExperiment {
    fn name(&self) -> String {
        "clock frequency".to_owned()
    }

    fn points(&self) -> usize {
        self.teams.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let (_, series) = &mut self.teams[point];
        let kernel = || "the chain of additions".to_owned();
        expect(kernel, rig.subject.dependent_adds(ADDITIONS) as f64, ADDITIONS as f64, 0.0)?;
        series.visit(rig, || {
            rig.teams[point].run(|_, _| {
                std::hint::black_box(rig.subject.dependent_adds(ADDITIONS));
            });
        });
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        for team in &mut host.teams {
            let series = self.teams.iter().find(|(members, _)| *members == team.threads);
            let Some(summary) = series.and_then(|(_, series)| series.summary()) else { continue };
            let time = without_launch(summary.median, team.launch.value.get());
            let clock = Hertz::new(ADDITIONS as f64 / time);
            team.frequency = Presence::Present(record.sourced(&threads(team.threads), clock, summary));
        }
    }
}
