//! The six kernels, predicted and measured.

use crate::error::MeasureError;
use crate::method::clock::CalibratedClock;
use crate::method::extent::MeasurementExtent;
use crate::method::options::{Depth, Progress};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use crate::operands::arena::OperandArena;
use crate::operands::kernel_set::{KernelSet, RealKernels};
use crate::operands::probe_memory::ProbeMemory;
use crate::roofline::gradients::GradientsKernel;
use crate::roofline::prediction::HostRoofline;
use crate::roofline::product::{MATRIX, ProductKernel};
use crate::roofline::sparse::SparseKernel;
use crate::roofline::stencil::JacobiKernel;
use crate::roofline::subject::RooflineKernel;
use crate::roofline::vectors::AxpyKernel;
use crate::system::{caches, limits, processor};
use hwprofiles::{Bytes, BytesPerSec, DType, Flop, FlopPerSec, Host, Processor, Seconds};
use kernels::{Buffer, Pool, affinity};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Kernels in f32 under the roofline of the machine that they ran on.
#[derive(Debug, Clone, PartialEq)]
pub struct RooflineCheck {
    /// The name of the host.
    pub host: String,
    /// The flat roof: the most that f32 arithmetic reaches, by the host's file.
    pub peak: FlopPerSec,
    /// The sloped roof: the most that the memory reads and writes per second, by the host's file.
    pub bandwidth: BytesPerSec,
    /// The kernels.
    pub kernels: Vec<CheckedKernel>,
}

/// One kernel: what it does, and how long that takes.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedKernel {
    /// What is computed, on which operands.
    pub name: String,
    /// Floating-point operations; a multiply-add is 2.
    pub flop: Flop,
    /// Bytes read and written; a line is read before it is written.
    pub bytes: Bytes,
    /// max(FLOP ÷ peak, bytes ÷ bandwidth) at its share of writes, from the file. Operands that
    /// stay in caches have the caches' bandwidth.
    pub roof: Seconds,
    /// The time expected from the file: fork-joins, and the roof or the table of products.
    pub predicted: Seconds,
    /// The median of the measured times.
    pub measured: Seconds,
    /// (Third quartile − first quartile) ÷ median of the measured times.
    pub spread: f64,
}

/// The rows of x in the matrix product, between those of the table of products.
const ROWS: usize = 192;

/// Predicts AXPY, matrix-vector and matrix-matrix products, sparse products, a Jacobi sweep and an
/// iteration of conjugate gradients, all in f32 on all cores, from `host` alone, and measures them
/// on this machine. The calling thread is pinned while it runs.
///
/// # Errors
/// [`MeasureError::OtherMachine`] where `host` is not this machine, [`MeasureError::MissingRate`]
/// where it lacks a rate, and [`MeasureError::Wrong`] where a kernel computed something wrong.
pub fn check_roofline(
    host: &Host,
    depth: Depth,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<RooflineCheck, MeasureError> {
    check(&RealKernels, host, depth, progress)
}

fn check(
    subject: &dyn KernelSet,
    host: &Host,
    depth: Depth,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<RooflineCheck, MeasureError> {
    let root = Path::new("/");
    let cpu = processor::processor(root, &affinity::available_cores())?;
    let described = |cpu: &Processor| format!("{} with {} cores", cpu.model, cpu.cores.len());
    let alike = (&host.cpu.model, host.cpu.cores.len()) == (&cpu.model, cpu.cores.len());
    if !alike || host.teams.iter().all(|team| team.threads != cpu.cores.len()) {
        return Err(MeasureError::OtherMachine { described: described(&host.cpu), this: described(&cpu) });
    }
    let roofline = HostRoofline::new(host)?;
    let cache = caches::last_level_cache(root, cpu.cores[0]);
    let extent = MeasurementExtent::new(depth, cpu.cores.len(), cache, limits::capacity(root)?);
    let own = caches::second_level_cache(root, cpu.cores[0]) as u64;
    affinity::restoring(|| {
        let rig = rig(subject, &cpu, depth, extent.arena)?;
        rig.all().pin_caller()?;
        // As much as the arrays of the mixes that predict them.
        let size = Bytes::new(2 * extent.arena as u64);
        let kernels = kernels(&rig, &roofline, size, Bytes::new(own))?;
        let kernels = measured(&rig, &roofline, kernels, passes(depth), progress)?;
        let (host, peak, bandwidth) = (host.host.clone(), roofline.peak, roofline.bandwidth());
        Ok(RooflineCheck { host, peak, bandwidth, kernels })
    })
}

/// Passes over all kernels.
fn passes(depth: Depth) -> usize {
    match depth {
        Depth::Tiny => 2,
        Depth::Quick => 12,
        Depth::Full => 60,
    }
}

/// One team of all cores, and matrices in f32 that take `arena` bytes.
fn rig<'a>(
    subject: &'a dyn KernelSet,
    cpu: &Processor,
    depth: Depth,
    arena: usize,
) -> Result<Rig<'a>, MeasureError> {
    let all = Pool::new(&cpu.cores)?;
    let visit = if depth == Depth::Tiny { Duration::ZERO } else { Duration::from_millis(30) };
    Ok(Rig {
        // No kernel here follows pointers.
        field: ProbeMemory::new(subject, &all, Buffer::new(1 << 16)?),
        teams: vec![all],
        arenas: OperandArena::by_weight_format([DType::F32], &[MATRIX], arena)?,
        caches: BTreeMap::new(),
        clock: CalibratedClock::calibrate(),
        visit,
        longest: f64::INFINITY,
        subject,
    })
}

/// The kernels by ascending intensity, with operands of `size` each and cores with caches of `own`.
fn kernels(
    rig: &Rig<'_>,
    roofline: &HostRoofline<'_>,
    size: Bytes,
    own: Bytes,
) -> Result<Vec<Box<dyn RooflineKernel>>, MeasureError> {
    let mut kernels: Vec<Box<dyn RooflineKernel>> = vec![Box::new(AxpyKernel::streamed(rig, size)?)];
    // Half of the cores' own caches leaves room for what else is in them.
    let caches = Bytes::new(own.get() / 2 * rig.all().members() as u64);
    if let Some(size) = roofline.cached_size(caches) {
        kernels.push(Box::new(AxpyKernel::cached(rig, size)?));
    }
    kernels.push(Box::new(GradientsKernel::new(rig, Bytes::new(size.get() / 2))?));
    kernels.push(Box::new(SparseKernel::banded(rig, size)?));
    kernels.push(Box::new(SparseKernel::random(rig, size, own)?));
    kernels.push(Box::new(JacobiKernel::new(rig, size)?));
    kernels.push(Box::new(ProductKernel::new(rig, 1)?));
    kernels.push(Box::new(ProductKernel::new(rig, ROWS)?));
    Ok(kernels)
}

/// Visits all kernels in passes, so that the machine's drift affects all alike.
fn measured(
    rig: &Rig<'_>,
    roofline: &HostRoofline<'_>,
    mut kernels: Vec<Box<dyn RooflineKernel>>,
    passes: usize,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<CheckedKernel>, MeasureError> {
    let total = passes * kernels.len();
    let mut series = vec![SampleSeries::default(); kernels.len()];
    for done in 0..total {
        let index = done % kernels.len();
        let (kernel, series) = (&mut kernels[index], &mut series[index]);
        progress(Progress { done, total, subject: &kernel.name() });
        if series.is_empty() {
            kernel.verify(rig)?;
        }
        series.visit(rig, || kernel.call(rig));
    }
    progress(Progress { done: total, total, subject: "done" });
    let checked = kernels.iter().zip(&series).filter_map(|(kernel, series)| {
        let (parts, summary) = (kernel.parts(), series.summary()?);
        Some(CheckedKernel {
            name: kernel.name(),
            flop: parts.iter().map(|work| work.flop).sum(),
            bytes: parts.iter().map(|work| work.traffic()).sum(),
            roof: roofline.roof(&parts),
            predicted: roofline.time(&parts),
            measured: Seconds::new(summary.median),
            spread: summary.spread,
        })
    });
    Ok(checked.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::bench;
    use crate::method::options::Options;
    use crate::operands::kernel_set::tests::FaultyKernels;
    use hwprofiles::Presence;

    fn host() -> Host {
        let options = Options { depth: Depth::Tiny, date: "2026-11-23".into(), command: "test".into() };
        let measured = bench::measure(&RealKernels, &options, &mut |_| {}, &mut |_| Ok(()));
        measured.expect("this machine can be measured").host
    }

    #[test]
    fn six_kernels_are_checked_none_is_predicted_faster_than_its_roof_and_wrong_ones_are_refused() {
        let host = host();
        let mut seen = Vec::new();
        let found = check(&RealKernels, &host, Depth::Tiny, &mut |now| seen.push((now.done, now.total)));
        let found = found.expect("this machine can be checked");
        for kernel in ["AXPY", "GEMV", "GEMM", "SpMV", "Jacobi", "CG"] {
            assert!(found.kernels.iter().any(|it| it.name.starts_with(kernel)), "{kernel}: {found:?}");
        }
        for it in &found.kernels {
            assert!(it.predicted > it.roof && it.measured > Seconds::ZERO, "{it:?}");
            assert!(it.flop / it.roof <= found.peak * (1.0 + 1e-9), "{it:?}");
        }
        let (done, total) = *seen.last().expect("it tells how far it is");
        assert!(done == total && seen.iter().all(|&(done, of)| done <= of && of == total));
        for name in ["AXPY", "SpMV", "Jacobi", "CG", "GEMV", "GEMM"] {
            match check(&FaultyKernels(name), &host, Depth::Tiny, &mut |_| {}) {
                Err(MeasureError::Wrong { kernel, .. }) => assert!(kernel.contains(name), "{name}: {kernel}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        let refused =
            |host: &Host| check(&RealKernels, host, Depth::Tiny, &mut |_| {}).unwrap_err().to_string();
        let mut other = host.clone();
        other.cpu.model = "A vector computer".to_owned();
        assert!(refused(&other).contains("A vector computer with"), "{}", refused(&other));
        let mut other = host;
        other.dram.mixes = Presence::Absent;
        assert!(refused(&other).contains("`dram: mixes` is missing"), "{}", refused(&other));
    }
}
