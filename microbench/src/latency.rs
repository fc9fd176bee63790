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
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    ring: Buffer,
    series: Series,
}

/// Words from one element to the next: one element on each cache line.
const STRIDE: usize = 16;
/// Steps of one call at least, so that its start does not show.
const STEPS: usize = 1 << 13;

impl Latency {
    /// For working sets of `sizes` bytes.
    pub fn new(sizes: &[usize]) -> Result<Self, Error> {
        let point = |(seed, &size): (usize, &usize)| {
            let mut ring = Buffer::new(size)?;
            stream::make_ring(ring.view_mut(), STRIDE, seed as u64 + 1);
            Ok(Point { ring, series: Series::default() })
        };
        let points: Result<Vec<_>, Error> = sizes.iter().enumerate().map(point).collect();
        Ok(Self { points: points? })
    }
}

impl Point {
    /// Elements of the cycle.
    fn elements(&self) -> usize {
        self.ring.len() / STRIDE / size_of::<u32>()
    }

    /// Whole rounds of one call: each starts where the last one ended, and every element is visited equally often.
    fn steps(&self) -> usize {
        STEPS.next_multiple_of(self.elements())
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
        let point = &mut self.points[point];
        let (steps, elements) = (point.steps(), point.elements());
        let ring = point.ring.view();
        if point.series.is_empty() {
            let what = || format!("the chase through {elements} elements");
            let end = |steps| f64::from(rig.subject.chase(ring, steps));
            expect(what, end(elements), 0.0, 0.0)?;
            // The first step leads where the ring says.
            expect(what, end(1), f64::from(ring[0]), 0.0)?;
        }
        point.series.visit(rig, || {
            black_box(rig.subject.chase(ring, steps));
        });
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut Record<'_>) {
        let (mut points, mut labels) = (Vec::new(), Points::default());
        for point in &self.points {
            let Some(summary) = point.series.summary() else { continue };
            let size = Bytes::new(point.ring.len() as u64);
            labels.add(format!("chase through {size}"), summary);
            points.push(CurvePoint { size, value: Seconds::new(summary.median / point.steps() as f64) });
        }
        let source = record.table(&threads(1), labels, None);
        host.dram.latency = Some(Curve { source, points });
    }
}
