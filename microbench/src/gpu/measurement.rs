//! Visits to all points of the GPU, and what comes of them.

use crate::error::MeasureError;
use crate::gpu::device::{GpuUnderTest, InstalledGpu};
use crate::gpu::grid::{self, GpuExtent};
use crate::gpu::table::{VisitOutcome, WorkTable};
use crate::gpu::{measured, near_cores};
use crate::method::options::{MeasuredHost, Options, Progress, Warning};
use crate::method::record::MeasurementRecord;
use crate::system::limits;
use hwprofiles::{Bytes, Host, MeasuredGpu, Presence, WriteError};
use kernels::affinity;
use kernels::cuda::{Accelerator, Gpu, Parity};
use std::path::Path;
use std::sync::Arc;

/// The result of measuring the GPU.
#[derive(Debug)]
pub(crate) struct GpuOutcome {
    /// Absent where there is none, or none that could be measured.
    pub(super) gpu: Presence<MeasuredGpu>,
    /// What to know about the measurement.
    pub(super) warnings: Vec<Warning>,
    /// Visits to points.
    pub(super) visits: usize,
}

/// Measures the GPU, and then everything else with `host`. Progress, saved hosts and the result of
/// both are joined to those of one measurement.
pub(crate) fn before(
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
    save: &mut dyn FnMut(&Host) -> Result<(), WriteError>,
    host: impl FnOnce(
        &mut dyn FnMut(Progress<'_>),
        &mut dyn FnMut(&Host) -> Result<(), WriteError>,
    ) -> Result<MeasuredHost, MeasureError>,
) -> Result<MeasuredHost, MeasureError> {
    let GpuOutcome { gpu, warnings, visits } = measure(options, progress)?;
    let with_gpu = |host: &Host| Host { gpu: gpu.clone(), ..host.clone() };
    let mut rest = host(
        &mut |it| progress(Progress { done: visits + it.done, total: visits + it.total, ..it }),
        &mut |host| save(&with_gpu(host)),
    )?;
    rest.host = with_gpu(&rest.host);
    rest.warnings.splice(..0, warnings);
    Ok(rest)
}

/// The GPU's name, and how far the results of each of its model kernels are from the CPU's.
///
/// # Errors
/// [`MeasureError::NoGpu`] with what is missing, and errors of the GPU.
pub fn gpu_kernel_parity() -> Result<(String, Vec<Parity>), MeasureError> {
    let gpu = Arc::new(Accelerator::open().map_err(MeasureError::NoGpu)?);
    Ok((gpu.name()?, kernels::cuda::parity(&gpu)?))
}

/// Looks for a GPU and measures it. A GPU that is missing or fails is no error: the reason is
/// reported as progress, and as a warning where there is a driver, since a GPU is then expected.
fn measure(options: &Options, progress: &mut dyn FnMut(Progress<'_>)) -> Result<GpuOutcome, MeasureError> {
    let root = Path::new("/");
    let extent = GpuExtent::new(options.depth);
    // The host's two buffers take at most a quarter of its memory.
    let host = limits::capacity(root)?.get() / 8;
    let host = Bytes::new(host.min(extent.largest_transfer.get()));
    affinity::restoring(|| match Gpu::open(host) {
        Ok(gpu) => {
            let available = affinity::available_cores();
            let near = near_cores::near_cores(root, &gpu.facts().bus, &available);
            if !near.is_empty() {
                affinity::confine_current_thread(&near)?;
            }
            Ok(measure_device(&mut InstalledGpu::new(gpu), &extent, options, progress))
        }
        Err(absent) => {
            let subject = format!("no GPU: {absent}");
            progress(Progress { done: 0, total: 1, subject: &subject });
            let warnings = if absent.has_driver { vec![left_out(absent.reason)] } else { Vec::new() };
            Ok(GpuOutcome { gpu: Presence::Absent, warnings, visits: 1 })
        }
    })
}

fn left_out(reason: String) -> Warning {
    Warning { subject: "GPU".to_owned(), message: format!("it is left out: {reason}") }
}

/// Measures `device`: all points from the coarsest grid to the finest, then all again while there
/// is time.
pub(super) fn measure_device(
    device: &mut dyn GpuUnderTest,
    extent: &GpuExtent,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> GpuOutcome {
    let facts = device.facts().clone();
    let mut tables = extent.tables(&facts);
    let order = grid::order(&tables);
    let mut visits = 0;
    let mut late = 0;
    'passes: for pass in 0..extent.passes {
        for &(table, point) in &order {
            let essential = pass == 0 && tables[table].essential;
            if !essential && device.elapsed() >= extent.budget {
                if pass > 0 {
                    break 'passes;
                }
                late += 1;
                continue;
            }
            let total = (order.len() * extent.passes).max(visits + 1);
            progress(Progress { done: visits, total, subject: tables[table].name() });
            visits += 1;
            match tables[table].visit(point, device) {
                VisitOutcome::Sampled | VisitOutcome::Refused => {}
                VisitOutcome::Failed(reason) => {
                    return GpuOutcome { gpu: Presence::Absent, warnings: vec![left_out(reason)], visits };
                }
            }
        }
    }
    let mut record = MeasurementRecord::new(options);
    let gpu = measured::measured_gpu(&tables, &facts, options, &mut record);
    let mut warnings = record.warnings();
    warnings.extend(tables.iter().filter_map(WorkTable::warning));
    warnings.extend(notes(&facts, late, order.len()));
    match gpu {
        Some(gpu) => GpuOutcome { gpu: Presence::Present(gpu), warnings, visits },
        None => GpuOutcome {
            gpu: Presence::Absent,
            warnings: vec![left_out("too little was measured".into())],
            visits,
        },
    }
}

/// Warnings about the measurement as a whole.
fn notes(facts: &kernels::cuda::GpuFacts, late: usize, points: usize) -> Vec<Warning> {
    let mut notes = Vec::new();
    let mut note = |message: String| notes.push(Warning { subject: "GPU".to_owned(), message });
    if facts.count > 1 {
        note(format!("the first of {} was measured: choose another with CUDA_VISIBLE_DEVICES", facts.count));
    }
    if let Some(reason) = &facts.no_products {
        note(format!("no matrix products: {reason}"));
    }
    if let Some(reason) = &facts.no_model_kernels {
        note(format!("none of the kernels that run models: {reason}"));
    }
    if late > 0 {
        note(format!(
            "the time was up before {late} of {points} points: measure without --quick, or on an idle GPU"
        ));
    }
    notes
}
