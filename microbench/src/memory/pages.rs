//! Base pages compared with huge pages.

use crate::error::MeasureError;
use crate::memory::latency::Chase;
use crate::method::experiment::{Experiment, expect};
use crate::method::record::{MeasurementRecord, threads, without_launch};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use crate::operands::array_walk::ArrayWalk;
use crate::operands::probe_memory::ProbeMemory;
use hwprofiles::{Bytes, Host, PageMode, PageSize, Seconds};
use std::hint::black_box;

/// The rig's probe memory, which asked for huge pages, and its copy in base pages. All cores read
/// both, and one core follows both.
#[derive(Debug)]
pub(crate) struct PagesExperiment {
    base: ProbeMemory,
    modes: [Mode; 2],
}

#[derive(Debug)]
struct Mode {
    asked: PageSize,
    size: Bytes,
    /// Bytes in huge pages, as the system reports.
    huge: Bytes,
    slices: ArrayWalk,
    read: SampleSeries,
    chase: Chase,
}

impl PagesExperiment {
    /// Copies the rig's probe memory.
    pub fn new(rig: &Rig<'_>) -> Result<Self, MeasureError> {
        let base = rig.field.copied(rig.subject, rig.all(), PageSize::Base)?;
        let mode = |asked, field: &ProbeMemory| Mode {
            asked,
            size: field.bytes(),
            huge: field.huge(),
            slices: ArrayWalk::new(field.values().len(), 1, rig.all()),
            read: SampleSeries::default(),
            chase: Chase::default(),
        };
        let modes = [mode(PageSize::Base, &base), mode(PageSize::Huge, &rig.field)];
        Ok(Self { base, modes })
    }
}

impl Experiment for PagesExperiment {
    fn name(&self) -> String {
        "base and huge pages".to_owned()
    }

    /// Reads of both, then chases through both, so that what is compared is measured side by side.
    fn points(&self) -> usize {
        2 * self.modes.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let Mode { asked, slices, read, chase, .. } = &mut self.modes[point % 2];
        let field = if *asked == PageSize::Base { &self.base } else { &rig.field };
        if point >= 2 {
            return chase.visit(rig, field.ring());
        }
        if read.is_empty() {
            let (sum, len) = (rig.subject.read(rig.all(), field.values()), field.values().len() as f64);
            expect(|| format!("the read of {} in {asked:?} pages", field.bytes()), sum, len, 1e-6 * len)?;
        }
        read.visit(rig, || {
            black_box(rig.subject.read(rig.all(), &field.values()[slices.next()]));
        });
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let Some(team) = host.teams.last() else { return };
        let mode = |mode: &Mode| {
            let (read, load) = (mode.read.summary()?, mode.chase.summary()?);
            let bytes = Bytes::new((mode.slices.slice() * size_of::<f64>()) as u64);
            let rate = bytes / Seconds::new(without_launch(read.median, team.launch.value.get()));
            let label = |measure: &str, by| format!("{measure} in {:?} pages by {}", mode.asked, threads(by));
            Some(PageMode {
                asked: mode.asked,
                size: mode.size,
                huge: record.stated("pages obtained", mode.huge),
                read: record.sourced(&label("reads", team.threads), rate, read),
                latency: record.sourced(&label("loads", 1), Seconds::new(load.median), load),
            })
        };
        host.dram.pages = self.modes.iter().map(mode).collect::<Option<Vec<_>>>().into();
    }
}
