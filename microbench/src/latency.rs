//! Time of one dependent random load, by working set.

use crate::Error;
use crate::experiment::{Experiment, expect};
use crate::record::{Points, Record, threads};
use crate::rig::Rig;
use crate::series::Series;
use hwprofiles::{Bytes, Curve, CurvePoint, Host, Seconds};
use kernels::{Buffer, stream};
use std::hint::black_box;

/// Random cycles through working sets of several sizes.
#[derive(Debug)]
pub(crate) struct Latency {
    /// Bytes of the last-level cache.
    cache: usize,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    ring: Buffer,
    /// Where the last call ended.
    at: u32,
    series: Series,
}

/// Words from one element to the next: one element on each cache line.
const STRIDE: usize = 16;
/// Steps of one call: up to a millisecond. The next call goes on where it ended, so that long rings are followed whole.
const STEPS: usize = 1 << 13;

impl Latency {
    /// For working sets of `sizes` bytes, of which those up to `cache` shall be in it.
    pub fn new(sizes: &[usize], cache: usize) -> Result<Self, Error> {
        let point = |(seed, &size): (usize, &usize)| {
            let mut ring = Buffer::new(size)?;
            stream::make_ring(ring.view_mut(), STRIDE, seed as u64 + 1);
            Ok(Point { ring, at: 0, series: Series::default() })
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
        let (cache, point) = (self.cache, &mut self.points[point]);
        let (ring, at, elements) =
            (point.ring.view(), &mut point.at, point.ring.len() / STRIDE / size_of::<u32>());
        if point.series.is_empty() {
            let what = || format!("the chase through {elements} elements");
            let end = |steps| f64::from(rig.subject.chase(ring, 0, steps));
            expect(what, end(elements), 0.0, 0.0)?;
            // The first step leads where the ring says.
            expect(what, end(1), f64::from(ring[0]), 0.0)?;
        }
        if size_of_val(ring) <= cache {
            // One call follows a part of the ring only: all of it is fetched again before.
            black_box(ring.iter().fold(0, |sum: u32, &next| sum.wrapping_add(next)));
        }
        point.series.visit(rig, || {
            *at = black_box(rig.subject.chase(ring, *at, STEPS));
        });
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut Record<'_>) {
        let (mut points, mut labels) = (Vec::new(), Points::default());
        for point in &self.points {
            let Some(summary) = point.series.summary() else { continue };
            let size = Bytes::new(point.ring.len() as u64);
            labels.add(format!("chase through {size}"), summary);
            points.push(CurvePoint { size, value: Seconds::new(summary.median / STEPS as f64) });
        }
        let source = record.table(&threads(1), labels, None);
        host.dram.latency = Some(Curve { source, points });
    }
}
