//! Streams through memory: read, write, copy, triad.
//!
//! The counted bytes are those that the program asks for ([`hwprofiles::StreamKind`]). Arrays
//! beyond the caches are stored around the caches, so that no line is read before it is written.
//! Each call goes through the next slice of an [`ArrayWalk`].

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::late_points::{is_no_larger, late_points};
use crate::method::record::{MeasurementRecord, TablePoints, threads, without_launch};
use crate::method::rig::{Rig, TeamId};
use crate::method::series::SampleSeries;
use crate::operands::arena::random;
use crate::operands::array_walk::ArrayWalk;
use hwprofiles::{Bytes, Curve, CurvePoint, Host, Seconds, StreamCurve, StreamKind};
use kernels::stream::StoreInstruction;
use kernels::{Buffer, Pool};
use std::hint::black_box;
use std::ops::Range;

/// The streams of every size by every team.
#[derive(Debug)]
pub(crate) struct BandwidthExperiment {
    /// Two buffers of the largest size: the source and the target.
    from: Buffer,
    to: Buffer,
    /// Size in bytes from which on arrays are stored around the caches.
    past_caches: usize,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    stream: StreamKind,
    slices: ArrayWalk,
    team: TeamId,
    series: SampleSeries,
}

const STREAMS: [StreamKind; 4] = [StreamKind::Read, StreamKind::Write, StreamKind::Copy, StreamKind::Triad];
const FACTOR: f64 = 3.0;
/// A fork-join that takes a larger part of the time than this hides the memory.
const LARGEST_LAUNCH: f64 = 1.0 / 3.0;

impl BandwidthExperiment {
    /// For `sizes` in bytes of all arrays together, ascending.
    pub fn new(rig: &Rig<'_>, sizes: &[usize], cache: usize) -> Result<Self, MeasureError> {
        let largest = sizes.last().copied().unwrap_or(0);
        let (mut from, mut to) = (Buffer::new(largest)?, Buffer::new(largest)?);
        // Each member touches its own part first, so that on a machine with several memories it is
        // near.
        for buffer in [&mut from, &mut to] {
            rig.subject.write(rig.all(), buffer.view_mut(), 1.0, StoreInstruction::Ordinary);
        }
        let block: Vec<f64> =
            random(1 << 16, 1).into_iter().map(|value| 1.0 + f64::from(value) / 2.0).collect();
        let fill = |chunk: &mut [f64]| chunk.copy_from_slice(&block[..chunk.len()]);
        from.view_mut::<f64>().chunks_mut(block.len()).for_each(fill);
        let mut points = Vec::new();
        for &size in sizes {
            for stream in STREAMS {
                let (arrays, values) = (arrays(stream), size / size_of::<f64>());
                for team in rig.team_ids() {
                    let slices = ArrayWalk::new(values / arrays, arrays, rig.team(team));
                    points.push(Point { stream, slices, team, series: SampleSeries::default() });
                }
            }
        }
        Ok(Self { from, to, past_caches: cache, points })
    }

    /// The share of the arrays in huge pages, for the record.
    fn pages(&self) -> Option<String> {
        let (from, to) = (self.from.pages()?, self.to.pages()?);
        let (huge, resident) = (from.huge + to.huge, from.resident + to.resident);
        Some(format!("{:.0} % in 2 MiB pages", 100.0 * huge.as_f64() / resident.as_f64().max(1.0)))
    }
}

impl Experiment for BandwidthExperiment {
    fn name(&self) -> String {
        "memory bandwidth".to_owned()
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let point = &mut self.points[point];
        let len = point.slices.len();
        let mut arrays = Arrays {
            stream: point.stream,
            from: self.from.view(),
            to: &mut self.to.view_mut()[..len],
            store: match point.bytes(len).get() as usize > self.past_caches {
                true => StoreInstruction::NonTemporal,
                false => StoreInstruction::Ordinary,
            },
        };
        let pool = rig.team(point.team);
        if point.series.is_empty() {
            let sum = arrays.pass(rig, pool, 0..len);
            arrays.verify(sum, point.team.threads)?;
        }
        let Point { series, slices, .. } = point;
        series.visit(rig, || {
            black_box(arrays.pass(rig, pool, slices.next()));
        });
        Ok(())
    }

    fn doubtful(&self) -> Vec<usize> {
        // For each value of an array.
        let time = |point: &Point| Some(point.series.summary()?.median / point.slices.slice() as f64);
        late_points(&self.points, time, Point::is_done_within)
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let pages = self.pages();
        host.dram.bandwidth.clear();
        for (stream, team) in
            STREAMS.iter().flat_map(|&stream| host.teams.iter().map(move |team| (stream, team)))
        {
            let points = self.points.iter().filter(|p| (p.stream, p.team.threads) == (stream, team.threads));
            let largest = points.clone().map(|p| p.slices.len()).max();
            let (mut curve, mut labels) = (Vec::new(), TablePoints::default());
            for point in points {
                let Some(summary) = point.series.summary() else { continue };
                let launch = team.launch.value.get();
                if Some(point.slices.len()) != largest && launch > LARGEST_LAUNCH * summary.median {
                    continue;
                }
                let (size, slice) = (point.bytes(point.slices.len()), point.bytes(point.slices.slice()));
                let time = Seconds::new(without_launch(summary.median, launch));
                let kind = format!("{stream:?}").to_lowercase();
                labels.add(format!("{kind} of {size}"), summary);
                curve.push(CurvePoint { size, value: slice / time });
            }
            let source = record.table(&threads(team.threads), labels, pages.as_deref());
            let curve = Curve { source, points: curve };
            host.dram.bandwidth.push(StreamCurve { stream, threads: team.threads, curve });
        }
    }
}

impl Point {
    /// Whether `less` is part of this for each value of arrays of the same size, with no fewer
    /// threads to do it: a copy reads and writes, and a triad reads one array more.
    fn is_done_within(&self, less: &Self) -> bool {
        let size = |point: &Self| point.slices.len() * arrays(point.stream);
        let is_same_size = size(self).abs_diff(size(less)) < 3;
        let is_part = match (less.stream, self.stream) {
            (StreamKind::Read | StreamKind::Write, StreamKind::Copy) => true,
            (StreamKind::Copy, StreamKind::Triad) => true,
            (less, this) => less == this,
        };
        is_same_size && is_part && is_no_larger(self.team.threads, less.team.threads)
    }

    /// Bytes of `values` values of each array.
    fn bytes(&self, values: usize) -> Bytes {
        Bytes::new((arrays(self.stream) * values * size_of::<f64>()) as u64)
    }
}

/// The operands of one stream. `to` is as long as each array.
struct Arrays<'a> {
    stream: StreamKind,
    from: &'a [f64],
    to: &'a mut [f64],
    store: StoreInstruction,
}

impl Arrays<'_> {
    /// Goes through `range` of the arrays once. Returns the sum where the stream is a read.
    fn pass(&mut self, rig: &Rig<'_>, pool: &Pool, range: Range<usize>) -> f64 {
        let (a, rest) = self.from.split_at(self.to.len());
        let (a, to, store) = (&a[range.clone()], &mut self.to[range.clone()], self.store);
        match self.stream {
            StreamKind::Read => return rig.subject.read(pool, a),
            StreamKind::Write => rig.subject.write(pool, to, FACTOR, store),
            StreamKind::Copy => rig.subject.copy(pool, to, a, store),
            StreamKind::Triad => rig.subject.triad(pool, to, a, &rest[range], FACTOR, store),
        }
        0.0
    }

    /// Refuses a wrong sum, or wrong values among a sample of those written.
    fn verify(&self, sum: f64, team: usize) -> Result<(), MeasureError> {
        let len = self.to.len();
        let kernel =
            || format!("the {:?} stream of {len} values by {}", self.stream, threads(team)).to_lowercase();
        if self.stream == StreamKind::Read {
            let wanted: f64 = self.from[..len].iter().sum();
            return expect(kernel, sum, wanted, 1e-9 * wanted);
        }
        for at in (0..len).step_by((len / 64) | 1).chain([len - 1]) {
            let wanted = match self.stream {
                StreamKind::Write => FACTOR,
                StreamKind::Copy => self.from[at],
                _ => self.from[at] + FACTOR * self.from[len + at],
            };
            expect(kernel, self.to[at], wanted, 1e-12)?;
        }
        Ok(())
    }
}

/// The number of arrays of a stream.
fn arrays(stream: StreamKind) -> usize {
    match stream {
        StreamKind::Read | StreamKind::Write => 1,
        StreamKind::Copy => 2,
        StreamKind::Triad => 3,
    }
}
