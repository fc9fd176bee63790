//! The GPU: launches, streams in its memory, the link to it, and matrix products.
//!
//! Attention is left out: the kernels that engines run are not ours to time, and a simple one would misrepresent them.

mod device;
mod grid;
#[cfg(test)]
mod modelled;
mod near;
mod part;
mod table;

use crate::record::Record;
use crate::{Error, Measured, Options, Progress, Warning, limits};
use device::{Device, OnBoard};
use grid::Extent;
use hwprofiles::{Bytes, Host, MeasuredGpu, Presence, WriteError};
use kernels::affinity;
use kernels::cuda::{Accelerator, Gpu, Parity};
use std::path::Path;
use std::sync::Arc;
use table::{Table, Visited};

/// What is known of the GPU.
#[derive(Debug)]
pub(crate) struct Found {
    /// Absent where there is none, or none that could be measured.
    gpu: Presence<MeasuredGpu>,
    /// What to know about it.
    warnings: Vec<Warning>,
    /// Visits to points.
    visits: usize,
}

/// Measures the GPU, and then with `host` everything else, which thereby becomes the rest of one measurement: of its
/// progress, of what it saves, and of the result.
pub(crate) fn before(
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
    save: &mut dyn FnMut(&Host) -> Result<(), WriteError>,
    host: impl FnOnce(
        &mut dyn FnMut(Progress<'_>),
        &mut dyn FnMut(&Host) -> Result<(), WriteError>,
    ) -> Result<Measured, Error>,
) -> Result<Measured, Error> {
    let Found { gpu, warnings, visits } = measure(options, progress)?;
    let with_gpu = |host: &Host| Host { gpu: gpu.clone(), ..host.clone() };
    let mut rest = host(
        &mut |it| progress(Progress { done: visits + it.done, of: visits + it.of, ..it }),
        &mut |host| save(&with_gpu(host)),
    )?;
    rest.host = with_gpu(&rest.host);
    rest.warnings.splice(..0, warnings);
    Ok(rest)
}

/// The GPU's name, and how far each kernel that runs a model on it is from the CPU's.
///
/// # Errors
/// [`Error::NoGpu`] with what is missing, and what the GPU refuses.
pub fn kernels() -> Result<(String, Vec<Parity>), Error> {
    let gpu = Arc::new(Accelerator::open().map_err(Error::NoGpu)?);
    Ok((gpu.name()?, kernels::cuda::parity(&gpu)?))
}

/// Looks for a GPU and measures it. One that is not there is no error, nor is one that fails: the reason is told as
/// progress, and warned of where there is a driver, so that somebody expects a GPU.
fn measure(options: &Options, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Found, Error> {
    let root = Path::new("/");
    let extent = Extent::new(options.depth);
    // The host's two buffers are a quarter of its memory at most.
    let host = limits::capacity(root)?.get() / 8;
    let host = Bytes::new(host.min(extent.largest_transfer.get()));
    affinity::restoring(|| match Gpu::open(host) {
        Ok(gpu) => {
            let available = affinity::available_cores();
            let near = near::cores(root, &gpu.facts().bus, &available);
            if !near.is_empty() {
                affinity::confine_current_thread(&near)?;
            }
            Ok(of(&mut OnBoard::new(gpu), &extent, options, progress))
        }
        Err(absent) => {
            let what = format!("no GPU: {absent}");
            progress(Progress { done: 0, of: 1, what: &what });
            let warnings = if absent.driver { vec![left_out(absent.reason)] } else { Vec::new() };
            Ok(Found { gpu: Presence::Absent, warnings, visits: 1 })
        }
    })
}

fn left_out(reason: String) -> Warning {
    Warning { what: "GPU".to_owned(), message: format!("it is left out: {reason}") }
}

/// Measures `device`: all points from the coarsest grid to the finest, then all again for as long as there is time.
fn of(
    device: &mut dyn Device,
    extent: &Extent,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Found {
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
            let of = (order.len() * extent.passes).max(visits + 1);
            progress(Progress { done: visits, of, what: tables[table].what() });
            visits += 1;
            match tables[table].visit(point, device) {
                Visited::Sampled | Visited::Refused => {}
                Visited::Failed(reason) => {
                    return Found { gpu: Presence::Absent, warnings: vec![left_out(reason)], visits };
                }
            }
        }
    }
    let mut record = Record::new(options);
    let gpu = part::measured(&tables, &facts, options, &mut record);
    let mut warnings = record.warnings();
    warnings.extend(tables.iter().filter_map(Table::warning));
    warnings.extend(notes(&facts, late, order.len()));
    match gpu {
        Some(gpu) => Found { gpu: Presence::Present(gpu), warnings, visits },
        None => Found {
            gpu: Presence::Absent,
            warnings: vec![left_out("too little was measured".into())],
            visits,
        },
    }
}

/// What to know about the whole.
fn notes(facts: &kernels::cuda::Facts, late: usize, points: usize) -> Vec<Warning> {
    let mut notes = Vec::new();
    let mut note = |message: String| notes.push(Warning { what: "GPU".to_owned(), message });
    if facts.count > 1 {
        note(format!("the first of {} was measured: choose another with CUDA_VISIBLE_DEVICES", facts.count));
    }
    if let Some(reason) = &facts.no_products {
        note(format!("no matrix products: {reason}"));
    }
    if late > 0 {
        note(format!(
            "the time was up before {late} of {points} points: measure without --quick, or on an idle GPU"
        ));
    }
    notes
}
