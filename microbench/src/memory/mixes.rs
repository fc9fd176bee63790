//! Reads and writes mixed, with ordinary and with non-temporal stores.

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::record::{MeasurementRecord, TablePoints, threads, without_launch};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use crate::operands::array_walk::ArrayWalk;
use hwprofiles::{Bytes, Host, Presence, ReadWriteMix, ReadWriteMixes, Seconds, StoreKind};
use kernels::Buffer;
use kernels::stream::StoreInstruction;
use std::hint::black_box;
use std::ops::Range;

/// Sums of up to three arrays into one, by all cores.
#[derive(Debug)]
pub(crate) struct MixesExperiment {
    to: Buffer,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    reads: usize,
    stores: StoreKind,
    slices: ArrayWalk,
    series: SampleSeries,
}

impl MixesExperiment {
    /// With as much memory as the rig's probe memory.
    pub fn new(rig: &Rig<'_>) -> Result<Self, MeasureError> {
        let mut to = Buffer::new(rig.field.bytes().get() as usize)?;
        rig.subject.write(rig.all(), to.view_mut(), 1.0, StoreInstruction::Ordinary);
        let both = [StoreKind::Ordinary, StoreKind::NonTemporal];
        let mixes = (0..=3).flat_map(|reads| both.map(|stores| (reads, stores)));
        let point = |(reads, stores): (usize, StoreKind)| {
            // Its arrays are as long as possible: all sources lie in the probe memory.
            let slices = ArrayWalk::new(rig.field.values().len() / reads.max(1), reads.max(1), rig.all());
            Point { reads, stores, slices, series: SampleSeries::default() }
        };
        Ok(Self { to, points: [(1, StoreKind::None)].into_iter().chain(mixes).map(point).collect() })
    }
}

impl Point {
    fn writes(&self) -> usize {
        usize::from(self.stores != StoreKind::None)
    }

    /// Bytes that one call reads and writes.
    fn bytes(&self) -> Bytes {
        Bytes::new(((self.reads + self.writes()) * self.slices.slice() * size_of::<f64>()) as u64)
    }
}

impl Experiment for MixesExperiment {
    fn name(&self) -> String {
        "reads and writes mixed".to_owned()
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let Point { reads, stores, slices, series } = &mut self.points[point];
        let (len, values) = (slices.len(), rig.field.values());
        let arrays: Vec<&[f64]> = values.chunks_exact(len).take(*reads).collect();
        let to = &mut self.to.view_mut::<f64>()[..len];
        if series.is_empty() && *stores != StoreKind::None {
            pass(rig, *stores, to, &arrays, 0..len);
            for at in (0..len).step_by((len / 64) | 1).chain([len - 1]) {
                let wanted = arrays.iter().map(|array| array[at]).sum();
                let kernel = || format!("the mix of {reads} reads and a write of {len} values");
                expect(kernel, to[at], wanted, 1e-12)?;
            }
        }
        series.visit(rig, || pass(rig, *stores, to, &arrays, slices.next()));
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let Some(team) = host.teams.last() else { return };
        let (mut points, mut labels) = (Vec::new(), TablePoints::default());
        for point in &self.points {
            let Some(summary) = point.series.summary() else { continue };
            let (reads, writes, stores) = (point.reads as u64, point.writes() as u64, point.stores);
            labels.add(format!("{reads}:{writes} with {stores:?} stores").to_lowercase(), summary);
            let time = Seconds::new(without_launch(summary.median, team.launch.value.get()));
            points.push(ReadWriteMix { reads, writes, stores, rate: point.bytes() / time });
        }
        let source = record.table(&threads(team.threads), labels, None);
        host.dram.mixes = Presence::Present(ReadWriteMixes { source, threads: team.threads, points });
    }
}

/// Goes through one slice of the arrays.
fn pass(rig: &Rig<'_>, stores: StoreKind, to: &mut [f64], from: &[&[f64]], range: Range<usize>) {
    let parts: Vec<&[f64]> = from.iter().map(|array| &array[range.clone()]).collect();
    match stores {
        StoreKind::None => {
            black_box(rig.subject.read(rig.all(), parts[0]));
        }
        StoreKind::Ordinary => rig.subject.sum(rig.all(), &mut to[range], &parts, StoreInstruction::Ordinary),
        StoreKind::NonTemporal => {
            rig.subject.sum(rig.all(), &mut to[range], &parts, StoreInstruction::NonTemporal)
        }
    }
}
