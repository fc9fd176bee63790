//! Time of one dependent random load, by working set.

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::record::{MeasurementRecord, TablePoints, threads};
use crate::method::rig::Rig;
use crate::method::sample_summary::SampleSummary;
use crate::method::series::SampleSeries;
use crate::operands::probe_memory::STRIDE;
use hwprofiles::{Bytes, Curve, CurvePoint, Host, Seconds};
use kernels::{Buffer, stream};
use std::hint::black_box;

/// Random cycles through working sets of several sizes.
#[derive(Debug)]
pub(crate) struct LatencyExperiment {
    /// Bytes of the last-level cache.
    cache: usize,
    points: Vec<(Buffer, Chase)>,
}

/// Steps of one call: up to a millisecond. The next call continues where it ended, so that long
/// rings are followed as a whole.
const STEPS: usize = 1 << 13;

/// A ring that is followed part by part, and the times of the parts.
#[derive(Debug, Default)]
pub(crate) struct Chase {
    /// Where the last part ended.
    at: u32,
    series: SampleSeries,
}

impl Chase {
    /// Follows `ring` for the duration of a visit.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] where the first step does not lead where the ring says.
    pub fn visit(&mut self, rig: &Rig<'_>, ring: &[u32]) -> Result<(), MeasureError> {
        if self.series.is_empty() {
            let kernel = || format!("the chase through {} elements", ring.len() / STRIDE);
            expect(kernel, f64::from(rig.subject.chase(ring, 0, 1)), f64::from(ring[0]), 0.0)?;
        }
        let Self { at, series } = self;
        series.visit(rig, || *at = black_box(rig.subject.chase(ring, *at, STEPS)));
        Ok(())
    }

    /// Follows `ring` for one sample.
    pub fn sample(&mut self, rig: &Rig<'_>, ring: &[u32]) {
        let Self { at, series } = self;
        series.push(rig.clock.time(1, || *at = black_box(rig.subject.chase(ring, *at, STEPS))));
    }

    /// Whether it has no samples yet.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The time of one load.
    pub fn summary(&self) -> Option<SampleSummary> {
        self.series.summary().map(|part| SampleSummary { median: part.median / STEPS as f64, ..part })
    }
}

impl LatencyExperiment {
    /// For working sets of `sizes` bytes. Those up to `cache` bytes are to be in the cache.
    pub fn new(sizes: &[usize], cache: usize) -> Result<Self, MeasureError> {
        let point = |(seed, &size): (usize, &usize)| {
            let mut ring = Buffer::new(size)?;
            stream::make_ring(ring.view_mut(), STRIDE, seed as u64 + 1);
            Ok((ring, Chase::default()))
        };
        let points: Result<Vec<_>, MeasureError> = sizes.iter().enumerate().map(point).collect();
        Ok(Self { cache, points: points? })
    }
}

impl Experiment for LatencyExperiment {
    fn name(&self) -> String {
        "memory latency".to_owned()
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let (ring, chase) = &mut self.points[point];
        let ring = ring.view();
        if chase.is_empty() {
            let elements = ring.len() / STRIDE;
            let kernel = || format!("the chase through {elements} elements");
            expect(kernel, f64::from(rig.subject.chase(ring, 0, elements)), 0.0, 0.0)?;
        }
        if size_of_val(ring) <= self.cache {
            // A call follows only a part of the ring, so all of it is fetched into the cache
            // before.
            black_box(ring.iter().fold(0, |sum: u32, &next| sum.wrapping_add(next)));
        }
        chase.visit(rig, ring)
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let (mut points, mut labels) = (Vec::new(), TablePoints::default());
        for (ring, chase) in &self.points {
            let Some(load) = chase.summary() else { continue };
            let size = Bytes::new(ring.len() as u64);
            labels.add(format!("chase through {size}"), load);
            points.push(CurvePoint { size, value: Seconds::new(load.median) });
        }
        let source = record.table(&threads(1), labels, None);
        host.dram.latency = Some(Curve { source, points });
    }
}
