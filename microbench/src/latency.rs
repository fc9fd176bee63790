//! Time of one dependent random load, by working set.

use crate::Error;
use crate::experiment::{Experiment, expect};
use crate::record::{Points, Record, threads};
use crate::rig::Rig;
use crate::series::Series;
use crate::statistics::Summary;
use hwprofiles::{Bytes, Curve, CurvePoint, Host, Seconds};
use kernels::{Buffer, stream};
use std::hint::black_box;

/// Random cycles through working sets of several sizes.
#[derive(Debug)]
pub(crate) struct Latency {
    /// Bytes of the last-level cache.
    cache: usize,
    points: Vec<(Buffer, Chase)>,
}

/// Words from one element to the next: one element on each cache line.
pub(crate) const STRIDE: usize = 16;
/// Steps of one call: up to a millisecond. The next call goes on where it ended, so that long rings are followed whole.
const STEPS: usize = 1 << 13;

/// A ring that is followed part by part, and the times of the parts.
#[derive(Debug, Default)]
pub(crate) struct Chase {
    /// Where the last part ended.
    at: u32,
    series: Series,
}

impl Chase {
    /// Follows `ring` for as long as a visit lasts.
    ///
    /// # Errors
    /// [`Error::Wrong`] where the first step does not lead where the ring says.
    pub fn visit(&mut self, rig: &Rig<'_>, ring: &[u32]) -> Result<(), Error> {
        if self.series.is_empty() {
            let what = || format!("the chase through {} elements", ring.len() / STRIDE);
            expect(what, f64::from(rig.subject.chase(ring, 0, 1)), f64::from(ring[0]), 0.0)?;
        }
        let Self { at, series } = self;
        series.visit(rig, || *at = black_box(rig.subject.chase(ring, *at, STEPS)));
        Ok(())
    }

    /// Follows `ring` once more, at its caller's time.
    pub fn sample(&mut self, rig: &Rig<'_>, ring: &[u32]) {
        let Self { at, series } = self;
        series.push(rig.clock.time(1, || *at = black_box(rig.subject.chase(ring, *at, STEPS))));
    }

    /// Whether it was never followed.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The time of one load.
    pub fn summary(&self) -> Option<Summary> {
        self.series.summary().map(|part| Summary { median: part.median / STEPS as f64, ..part })
    }
}

impl Latency {
    /// For working sets of `sizes` bytes, of which those up to `cache` shall be in it.
    pub fn new(sizes: &[usize], cache: usize) -> Result<Self, Error> {
        let point = |(seed, &size): (usize, &usize)| {
            let mut ring = Buffer::new(size)?;
            stream::make_ring(ring.view_mut(), STRIDE, seed as u64 + 1);
            Ok((ring, Chase::default()))
        };
        let points: Result<Vec<_>, Error> = sizes.iter().enumerate().map(point).collect();
        Ok(Self { cache, points: points? })
    }
}

impl Experiment for Latency {
    fn what(&self) -> String {
        "memory latency".to_owned()
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), Error> {
        let (ring, chase) = &mut self.points[point];
        let ring = ring.view();
        if chase.is_empty() {
            let elements = ring.len() / STRIDE;
            let what = || format!("the chase through {elements} elements");
            expect(what, f64::from(rig.subject.chase(ring, 0, elements)), 0.0, 0.0)?;
        }
        if size_of_val(ring) <= self.cache {
            // One call follows a part of the ring only: all of it is fetched again before.
            black_box(ring.iter().fold(0, |sum: u32, &next| sum.wrapping_add(next)));
        }
        chase.visit(rig, ring)
    }

    fn fill(&self, host: &mut Host, record: &mut Record<'_>) {
        let (mut points, mut labels) = (Vec::new(), Points::default());
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
