//! The measurement of a host: all experiments, in passes.

use crate::compute::attention::AttentionExperiment;
use crate::compute::ceilings::CeilingsExperiment;
use crate::compute::elementwise::ElementwiseExperiment;
use crate::compute::frequency::FrequencyExperiment;
use crate::compute::gemm::GemmExperiment;
use crate::error::MeasureError;
use crate::host::launch::LaunchExperiment;
use crate::host::sync::SyncExperiment;
use crate::host::transfer::TransferExperiment;
use crate::memory::bandwidth::BandwidthExperiment;
use crate::memory::cxl;
use crate::memory::latency::LatencyExperiment;
use crate::memory::loaded::LoadedLatencyExperiment;
use crate::memory::mixes::MixesExperiment;
use crate::memory::numa::NumaExperiment;
use crate::memory::pages::PagesExperiment;
use crate::method::clock::CalibratedClock;
use crate::method::experiment::Experiment;
use crate::method::extent::MeasurementExtent;
use crate::method::options::{MeasuredHost, Options, Progress, Warning};
use crate::method::record::MeasurementRecord;
use crate::method::rig::Rig;
use crate::operands::arena::OperandArena;
use crate::operands::kernel_set::KernelSet;
use crate::operands::probe_memory::ProbeMemory;
use crate::system::caches;
use crate::system::limits;
use crate::system::numa_nodes;
use crate::system::processor;
use hwprofiles::{
    Bytes, BytesPerSec, CoreTeam, DType, Dram, Host, Loopback, Presence, Processor, Seconds, Sourced,
    WriteError,
};
use kernels::{Buffer, Pool, affinity};
use std::path::Path;
use std::time::{Duration, Instant};

/// Measures the kernels of `subject` on this machine; see [`crate::measure`].
pub(crate) fn measure(
    subject: &dyn KernelSet,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
    save: &mut dyn FnMut(&Host) -> Result<(), WriteError>,
) -> Result<MeasuredHost, MeasureError> {
    let start = Instant::now();
    let root = Path::new("/");
    let cpu = processor::processor(root, &affinity::available_cores())?;
    let capacity = limits::capacity(root)?;
    let cache = caches::last_level_cache(root, cpu.cores[0]);
    let extent = MeasurementExtent::new(options.depth, cpu.cores.len(), cache, capacity);
    affinity::restoring(|| {
        let teams = extent.teams.iter().map(|&size| Pool::new(&cpu.cores[..size]));
        let teams = teams.collect::<Result<Vec<_>, _>>()?;
        let all = teams.last().expect("there is a team of one at least");
        let rig = Rig {
            field: ProbeMemory::new(subject, all, Buffer::new(extent.field)?),
            teams,
            arenas: OperandArena::by_weight_format(
                extent.weights.iter().map(|(dtype, _)| *dtype),
                &extent.shapes,
                extent.arena,
            )?,
            caches: OperandArena::by_cache_format(extent.arena)?,
            clock: CalibratedClock::calibrate(),
            visit: extent.visit,
            longest: extent.longest,
            subject,
        };
        rig.all().pin_caller()?;
        let mut bench = HostBench::new(&rig, &extent, cache, options, cpu.clone(), capacity)?;
        bench.run(start, &extent, progress, save)
    })
}

/// Visits of a point whose time cannot be right, at most, behind the last pass.
const DOUBTFUL_PASSES: usize = 8;

/// All experiments, and the facts that need none.
struct HostBench<'a> {
    rig: &'a Rig<'a>,
    options: &'a Options,
    cpu: Processor,
    capacity: Bytes,
    /// The first [`HostBench::essential`] experiments make a valid host.
    experiments: Vec<Box<dyn Experiment>>,
    essential: usize,
    warnings: Vec<Warning>,
}

impl<'a> HostBench<'a> {
    fn new(
        rig: &'a Rig<'a>,
        extent: &MeasurementExtent,
        cache: usize,
        options: &'a Options,
        cpu: Processor,
        capacity: Bytes,
    ) -> Result<Self, MeasureError> {
        let mut warnings = Vec::new();
        let mut experiments: Vec<Box<dyn Experiment>> = vec![
            Box::new(LaunchExperiment::new(rig)),
            Box::new(BandwidthExperiment::new(rig, &extent.streams, cache)?),
            Box::new(ElementwiseExperiment::new(rig, extent.elementwise)?),
        ];
        if cpu.cores.len() > 1 {
            experiments.push(Box::new(SyncExperiment::default()));
            experiments.push(Box::new(TransferExperiment::new(extent.transfer)?));
        }
        let essential = experiments.len();
        experiments.push(Box::new(LatencyExperiment::new(&extent.rings, cache)?));
        experiments.push(Box::new(FrequencyExperiment::new(rig)));
        experiments.push(Box::new(MixesExperiment::new(rig)?));
        experiments.push(Box::new(PagesExperiment::new(rig)?));
        if cpu.cores.len() > 1 {
            experiments.push(Box::new(LoadedLatencyExperiment::new(rig)?));
        }
        let nodes = numa_nodes::nodes(Path::new("/"));
        if !nodes.is_empty() {
            let (reach, refused) =
                NumaExperiment::new(rig, nodes, &cpu.cores, cxl::is_there(Path::new("/")))?;
            experiments.push(Box::new(reach));
            warnings.extend(refused);
        }
        for (dtype, rows) in &extent.weights {
            experiments.push(Box::new(GemmExperiment::new(rig, *dtype, &extent.shapes, rows)?));
        }
        let own = Bytes::new(caches::second_level_cache(Path::new("/"), cpu.cores[0]) as u64);
        experiments.push(Box::new(CeilingsExperiment::new(rig, extent, own)?));
        for dtype in [DType::F32, DType::Bf16, DType::Int8, DType::Int2] {
            experiments.push(Box::new(AttentionExperiment::new(rig, dtype, extent)?));
        }
        if extent.arena < 2 * cache {
            warnings.push(Warning {
                subject: "operands".to_owned(),
                message: format!(
                    "those of products take at most a 64th of the memory, {}, which is less than twice the last-level cache \
                     ({}): what should come from memory comes in part from the cache",
                    Bytes::new(extent.arena as u64),
                    Bytes::new(cache as u64)
                ),
            });
        }
        Ok(Self { rig, options, cpu, capacity, experiments, essential, warnings })
    }

    /// Passes over all points until the time is up.
    fn run(
        &mut self,
        start: Instant,
        extent: &MeasurementExtent,
        progress: &mut dyn FnMut(Progress<'_>),
        save: &mut dyn FnMut(&Host) -> Result<(), WriteError>,
    ) -> Result<MeasuredHost, MeasureError> {
        let points: usize = self.experiments.iter().map(|it| it.points()).sum();
        let (mut pass, mut passes, mut done) = (0, extent.passes, 0);
        while pass < passes {
            let began = Instant::now();
            for index in 0..self.experiments.len() {
                let experiment = &mut self.experiments[index];
                let subject = experiment.name();
                for point in 0..experiment.points() {
                    progress(Progress { done, total: passes * points, subject: &subject });
                    experiment.visit(point, self.rig)?;
                    done += 1;
                }
                // In the first pass the file grows by one table at a time; later passes refine it.
                if pass == 0 && index + 1 >= self.essential && index + 1 < self.experiments.len() {
                    save(&self.measured(index + 1).host)?;
                }
            }
            pass += 1;
            save(&self.measured(self.experiments.len()).host)?;
            let left = extent.budget.saturating_sub(start.elapsed());
            passes = extent.passes.min(pass + passes_left(left, began.elapsed()));
        }
        self.visit_doubtful()?;
        save(&self.measured(self.experiments.len()).host)?;
        progress(Progress { done, total: done, subject: "done" });
        Ok(self.measured(self.experiments.len()))
    }

    /// Visits the points again whose times cannot be right, until there are none or they stay as
    /// they are.
    fn visit_doubtful(&mut self) -> Result<(), MeasureError> {
        for experiment in &mut self.experiments {
            for _ in 0..DOUBTFUL_PASSES {
                let doubtful = experiment.doubtful();
                doubtful.iter().try_for_each(|&point| experiment.visit(point, self.rig))?;
                if doubtful.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The host as the first `count` experiments know it.
    fn measured(&self, count: usize) -> MeasuredHost {
        let mut record = MeasurementRecord::new(self.options);
        let (date, command) = (&self.options.date, &self.options.command);
        // The essential experiments replace these zeros: each of their visits takes a sample.
        let seconds = Sourced::measured(Seconds::ZERO, date, command, 0.0);
        let rate = Sourced::measured(BytesPerSec::ZERO, date, command, 0.0);
        let capacity = Sourced::measured(self.capacity, date, command, 0.0);
        let team = |pool: &Pool| empty_team(pool.members(), &seconds, &rate);
        let loopback = Loopback { sync: seconds.clone(), latency: seconds.clone(), bandwidth: rate.clone() };
        let mut host = Host {
            host: processor::name(&self.cpu),
            cpu: self.cpu.clone(),
            dram: Dram::new(capacity),
            numa: Presence::Absent,
            teams: self.rig.teams.iter().map(team).collect(),
            loopback: if self.cpu.cores.len() > 1 { Presence::Present(loopback) } else { Presence::Absent },
            gpu: Presence::Absent,
            cxl: Presence::Absent,
        };
        for experiment in &self.experiments[..count] {
            record.begin(experiment.name());
            experiment.fill(&mut host, &mut record);
        }
        let warnings = self.warnings.iter().cloned().chain(record.warnings()).collect();
        MeasuredHost { host, warnings }
    }
}

/// A team without measurements.
pub(crate) fn empty_team(
    threads: usize,
    launch: &Sourced<Seconds>,
    elementwise: &Sourced<BytesPerSec>,
) -> CoreTeam {
    CoreTeam {
        threads,
        frequency: Presence::Absent,
        kernels: Some(kernels::Path::best().name().to_owned()),
        launch: launch.clone(),
        gemm: Default::default(),
        ceilings: Default::default(),
        crossover: Default::default(),
        attention: Default::default(),
        elementwise: elementwise.clone(),
    }
}

/// How many passes as long as the last one fit into the time that is left.
fn passes_left(left: Duration, last: Duration) -> usize {
    (left.as_secs_f64() / last.as_secs_f64().max(1e-3)) as usize
}
