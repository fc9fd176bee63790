//! The latency of memory under load.

use crate::error::MeasureError;
use crate::memory::latency::Chase;
use crate::method::experiment::{Experiment, expect};
use crate::method::record::{MeasurementRecord, TablePoints};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use crate::operands::probe_memory::ProbeMemory;
use hwprofiles::{BytesPerSec, Host, LoadedLatency, LoadedPoint, PageSize, Presence, Seconds};
use kernels::{Pool, affinity, stream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Dependent loads on the first core while all other cores read other memory at several paces.
#[derive(Debug)]
pub(crate) struct LoadedLatencyExperiment {
    /// The ring that the first core follows. The readers read the rig's probe memory, or they would
    /// bring the ring into the caches.
    ring: ProbeMemory,
    readers: usize,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    percent: u64,
    chase: Chase,
    /// The rate of the readers, in bytes per second.
    rate: SampleSeries,
}

/// Paces in per cent of the first one's rate, at which the readers are not paced.
const PERCENT: [u64; 6] = [100, 0, 25, 50, 75, 90];
/// Values that a reader reads between two checks of the clock: a page, so that a slow pace is not a
/// series of bursts.
const BURST: usize = 512;
/// Approximate duration of one sample.
const SAMPLE: Duration = Duration::from_millis(1);
/// Loads before the first sample of a visit.
const WARM_UP: usize = 1 << 11;
/// How far a reader may catch up when it is late.
const CATCH_UP: Duration = Duration::from_micros(20);

impl LoadedLatencyExperiment {
    /// For a rig with at least two cores.
    pub fn new(rig: &Rig<'_>) -> Result<Self, MeasureError> {
        let point = |percent| Point { percent, chase: Chase::default(), rate: SampleSeries::default() };
        let ring = rig.field.copied(rig.subject, rig.all(), PageSize::Huge)?;
        Ok(Self { ring, readers: rig.all().members() - 1, points: PERCENT.into_iter().map(point).collect() })
    }
}

impl Point {
    /// Starts the readers, which read `pace` bytes per second together, and samples under their
    /// load.
    fn visit(&mut self, rig: &Rig<'_>, ring: &[u32], pace: Option<f64>) -> Result<(), MeasureError> {
        let cores = if self.percent == 0 { &[] } else { &rig.all().cores()[1..] };
        let readers: Vec<Reader<'_>> =
            (0..cores.len()).map(|index| Reader::new(rig, index, cores.len(), pace)).collect();
        let (ready, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let sums = thread::scope(|scope| {
            let mut started = Vec::new();
            for (reader, &core) in readers.iter().zip(cores) {
                let (ready, stop) = (&ready, &stop);
                started.push(scope.spawn(move || {
                    let pinned = affinity::pin_current_thread(core);
                    ready.fetch_add(1, Ordering::Relaxed);
                    pinned.map(|()| reader.read_until(stop))
                }));
            }
            while ready.load(Ordering::Relaxed) < cores.len() {
                std::hint::spin_loop();
            }
            self.sample(rig, ring, &readers);
            stop.store(true, Ordering::Relaxed);
            let join = |reader: thread::ScopedJoinHandle<'_, _>| {
                // A panic in a reader is a defect of ours and is passed on.
                reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            started.into_iter().map(join).collect::<Result<Vec<f64>, _>>()
        })?;
        for (sum, reader) in sums.into_iter().zip(&readers) {
            // All values are just above one.
            let wanted = reader.bytes() as f64 / size_of::<f64>() as f64;
            expect(|| format!("the read under a load of {} %", self.percent), sum, wanted, 1e-6 * wanted)?;
        }
        Ok(())
    }

    fn sample(&mut self, rig: &Rig<'_>, ring: &[u32], readers: &[Reader<'_>]) {
        let samples = (rig.visit.as_secs_f64() / SAMPLE.as_secs_f64()).clamp(1.0, 16.0) as usize;
        let read = || readers.iter().map(Reader::bytes).sum::<u64>();
        // The caches and the readers' pace settle.
        rig.subject.chase(ring, 0, WARM_UP);
        for _ in 0..samples {
            let (before, start) = (read(), Instant::now());
            self.chase.sample(rig, ring);
            let (after, elapsed) = (read(), start.elapsed());
            if self.percent > 0 {
                // At least a byte: where all readers slept during the sample, the rate is close to
                // zero.
                self.rate.push((after - before).max(1) as f64 / elapsed.as_secs_f64());
            }
        }
    }
}

/// One core that reads its part of the rig's probe memory again and again. Aligned, so that its
/// counter has its own cache line.
#[repr(align(64))]
struct Reader<'a> {
    pool: &'a Pool,
    part: &'a [f64],
    /// Bytes per second; `None` for as fast as possible.
    pace: Option<f64>,
    bytes: AtomicU64,
}

impl<'a> Reader<'a> {
    fn new(rig: &'a Rig<'_>, index: usize, readers: usize, pace: Option<f64>) -> Self {
        let values = rig.field.values();
        let part = &values[values.len() * index / readers..values.len() * (index + 1) / readers];
        Self { pool: rig.all(), part, pace: pace.map(|pace| pace / readers as f64), bytes: AtomicU64::new(0) }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reads until it is told to stop, and returns the sum of the values.
    fn read_until(&self, stop: &AtomicBool) -> f64 {
        let (mut sum, mut due) = (0.0, Instant::now());
        for burst in self.part.chunks(BURST).cycle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            sum += stream::read_alone(self.pool, burst);
            self.bytes.fetch_add(size_of_val(burst) as u64, Ordering::Relaxed);
            let Some(pace) = self.pace else { continue };
            due += Duration::from_secs_f64(size_of_val(burst) as f64 / pace);
            // A reader that was interrupted does not make up for all of it.
            due = due.max(Instant::now() - CATCH_UP);
            while Instant::now() < due && !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        sum
    }
}

impl Experiment for LoadedLatencyExperiment {
    fn name(&self) -> String {
        "latency under load".to_owned()
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let full = self.points[0].rate.summary().map(|full| full.median);
        let point = &mut self.points[point];
        let pace = match point.percent {
            100 => None,
            percent => full.map(|full| full * percent as f64 / 100.0),
        };
        point.visit(rig, self.ring.ring(), pace)
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let (mut points, mut labels) = (Vec::new(), TablePoints::default());
        let threads = self.readers;
        for Point { percent, chase, rate } in &self.points {
            let Some(load) = chase.summary() else { continue };
            labels.add(format!("loads under {percent} %"), load);
            let bandwidth = BytesPerSec::new(rate.summary().map_or(0.0, |rate| rate.median));
            points.push(LoadedPoint { percent: *percent, bandwidth, latency: Seconds::new(load.median) });
        }
        points.sort_by_key(|point| point.percent);
        let source = record.table("1 thread", labels, None);
        host.dram.loaded_latency = Presence::Present(LoadedLatency { source, threads, points });
    }
}
