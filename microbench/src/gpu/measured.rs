//! The GPU's part of a host file, from its samples.

use crate::gpu::table::{TableKind, WorkTable};
use crate::method::options::Options;
use crate::method::record::{MeasurementRecord, TablePoints};
use crate::method::sample_summary::{SampleSummary, sum};
use hwprofiles::{
    AttentionPoint, AttentionRates, Bytes, BytesPerSec, Curve, CurvePoint, DType, Direction, DirectionRates,
    ExecutorCosts, GemmPoint, GemmRates, GpuPart, HostMemory, LaunchCosts, LinkPart, MeasuredGpu, Phase,
    Ratio, Seconds, Sourced, TransferCurve,
};
use kernels::cuda::{GpuFacts, GpuWork, SmallKernel};
use std::collections::BTreeMap;

/// The measured GPU; `None` where an essential table has no samples.
pub(super) fn measured_gpu(
    tables: &[WorkTable],
    facts: &GpuFacts,
    options: &Options,
    record: &mut MeasurementRecord<'_>,
) -> Option<MeasuredGpu> {
    let name = slug(&facts.name);
    let find = |kind| tables.iter().find(|table| table.kind == kind);
    let launches = find(TableKind::Launches)?;
    let (read, copy) = (find(TableKind::Reads)?, find(TableKind::Copies)?);
    let read = curve(read, record, 1, None)?;
    let copy = curve(copy, record, 2, Some("bytes read and bytes written both count"))?;
    let stated = |bytes| Sourced::measured(bytes, &options.date, &options.command, 0.0);
    let capacity = stated(facts.capacity);
    let bandwidth = Sourced { value: read.at_largest()?, source: read.source.clone() };
    let transfers: Vec<_> = tables.iter().filter_map(|table| transfer(table, record)).collect();
    let link = link(&name, tables, &transfers, record)?;
    let (launches, launch, sync) = starts(launches, record)?;
    let (major, minor) = facts.capability;
    let gemm: BTreeMap<_, _> = tables.iter().filter_map(|table| products(table, record)).collect();
    let part = GpuPart {
        compute_capability: Some(format!("{major}.{minor}")),
        multiprocessors: Some(Sourced::measured(facts.multiprocessors, &options.date, &options.command, 0.0)),
        l2: (facts.l2 > Bytes::ZERO).then(|| stated(facts.l2)),
        issue: Some(
            find(TableKind::LayerCalls)
                .and_then(|table| issue(table, record))
                .unwrap_or(launches.host.clone()),
        ),
        kernel: find(TableKind::SmallKernels).and_then(|table| small_kernel(table, record)),
        attention: attention(tables, record).map(|rates| (DType::Bf16, rates)).into_iter().collect(),
        executor: find(TableKind::Mixtures).and_then(|table| executor(table, &gemm, record)),
        gemm,
        ..GpuPart::new(&name, capacity, bandwidth, launch, sync)
    };
    Some(MeasuredGpu { part, link, launches, read, copy, transfers })
}

/// "NVIDIA H200" as the name of a part: "nvidia-h200".
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(str::to_ascii_lowercase).collect();
    if words.is_empty() { "gpu".to_owned() } else { words.join("-") }
}

fn seconds(summary: SampleSummary) -> Seconds {
    Seconds::new(summary.median)
}

/// The costs of starting work, the cost of a launch beyond its kernel, and the round trip. The
/// second is zero, since a kernel's time includes its start.
fn starts(
    table: &WorkTable,
    record: &mut MeasurementRecord<'_>,
) -> Option<(LaunchCosts, Sourced<Seconds>, Sourced<Seconds>)> {
    record.begin(table.name().to_owned());
    let mut start_cost = |work, label: &str| {
        let (_, summary) = table.summaries().find(|(it, _)| *it == work)?;
        Some(record.sourced(label, seconds(summary), summary))
    };
    let launches = LaunchCosts {
        host: start_cost(GpuWork::Launch, "those by the host")?,
        node: start_cost(GpuWork::Node, "nodes of a graph")?,
        replay: start_cost(GpuWork::Replay, "replays")?,
    };
    let sync = start_cost(GpuWork::RoundTrip, "round trips")?;
    let launch = Sourced { value: Seconds::ZERO, source: launches.node.source.clone() };
    Some((launches, launch, sync))
}

fn size(work: GpuWork) -> Option<Bytes> {
    match work {
        GpuWork::Read(bytes) | GpuWork::Copy(bytes) | GpuWork::Transfer { bytes, .. } => Some(bytes),
        GpuWork::Launch
        | GpuWork::Node
        | GpuWork::Replay
        | GpuWork::RoundTrip
        | GpuWork::LayerCalls
        | GpuWork::PackedProduct { .. }
        | GpuWork::GroupedProduct
        | GpuWork::Mixture
        | GpuWork::SmallKernel(_)
        | GpuWork::Attention(_)
        | GpuWork::Product { .. } => None,
    }
}

/// Rates by size. Each byte counts `times`.
fn curve(
    table: &WorkTable,
    record: &mut MeasurementRecord<'_>,
    times: u64,
    note: Option<&str>,
) -> Option<Curve<BytesPerSec>> {
    record.begin(table.name().to_owned());
    let (mut points, mut known) = (Vec::new(), TablePoints::default());
    for (work, summary) in table.summaries() {
        let size = size(work)?;
        known.add(size.to_string(), summary);
        points.push(CurvePoint { size, value: Bytes::new(size.get() * times) / seconds(summary) });
    }
    let source = record.table("the GPU", known, note);
    (!points.is_empty()).then_some(Curve { source, points })
}

fn transfer(table: &WorkTable, record: &mut MeasurementRecord<'_>) -> Option<TransferCurve> {
    let TableKind::Transfers(direction, host_memory) = table.kind else { return None };
    let note = (direction == Direction::Both).then_some("each way");
    Some(TransferCurve { direction, host_memory, curve: curve(table, record, 1, note)? })
}

/// The link: β each way from the largest pinned transfer, and α from the smallest, the larger of
/// both directions.
fn link(
    name: &str,
    tables: &[WorkTable],
    transfers: &[TransferCurve],
    record: &mut MeasurementRecord<'_>,
) -> Option<LinkPart> {
    let at_largest = |direction, memory| {
        let it = transfers.iter().find(|it| (it.direction, it.host_memory) == (direction, memory))?;
        Some(Sourced { value: it.curve.at_largest()?, source: it.curve.source.clone() })
    };
    let to_device = at_largest(Direction::ToDevice, HostMemory::Pinned)?;
    let to_host = at_largest(Direction::ToHost, HostMemory::Pinned)?;
    let mut alpha: Option<(f64, SampleSummary)> = None;
    let mut times_in = |direction, beta: BytesPerSec| {
        let table =
            tables.iter().find(|table| table.kind == TableKind::Transfers(direction, HostMemory::Pinned))?;
        let (work, summary) = table.summaries().min_by_key(|(work, _)| size(*work))?;
        let own = summary.median - (size(work)? / beta).get();
        if alpha.is_none_or(|(other, _)| own > other) {
            alpha = Some((own, summary));
        }
        times(
            table,
            &transfers
                .iter()
                .find(|it| TableKind::Transfers(it.direction, it.host_memory) == table.kind)?
                .curve,
        )
    };
    let to_device_times = times_in(Direction::ToDevice, to_device.value);
    let to_host_times = times_in(Direction::ToHost, to_host.value);
    let (alpha, summary) = alpha?;
    record.begin("pinned transfers".to_owned());
    let latency = record.sourced("the smallest", Seconds::new(alpha.max(0.0)), summary);
    // Noise may make pageable memory appear faster where both kinds are alike.
    let pageable = |direction, pinned: &Sourced<BytesPerSec>| {
        let rate = at_largest(direction, HostMemory::Pageable)?;
        Some(if rate.value < pinned.value { rate } else { pinned.clone() })
    };
    let pageable = DirectionRates {
        to_device: pageable(Direction::ToDevice, &to_device)?,
        to_host: pageable(Direction::ToHost, &to_host)?,
    };
    let both = at_largest(Direction::Both, HostMemory::Pinned)?;
    // The slower direction ends last, and its end was timed.
    let slower = to_device.value.get().min(to_host.value.get());
    let duplex = Ratio::new((both.value.get() / slower).min(1.0))?;
    Some(LinkPart {
        to_device_times,
        to_host_times,
        pageable: Some(pageable),
        duplex: Some(Sourced { value: duplex, source: both.source }),
        ..LinkPart::new(&format!("{name}-link"), latency, to_device, to_host)
    })
}

/// The times behind a curve of rates, with the same source. More bytes never take less time, but
/// noise may suggest it for two small transfers, so the larger time is used for both.
fn times(table: &WorkTable, rates: &Curve<BytesPerSec>) -> Option<Curve<Seconds>> {
    let mut points: Vec<_> =
        table.summaries().filter_map(|(work, summary)| Some((size(work)?, summary.median))).collect();
    points.sort_unstable_by_key(|(size, _)| *size);
    let mut longest = 0.0;
    let points = points.into_iter().map(|(size, seconds)| {
        longest = seconds.max(longest);
        CurvePoint { size, value: Seconds::new(longest) }
    });
    Some(Curve { source: rates.source.clone(), points: points.collect() })
}

/// The mean time of the small operators of a layer; `None` where one of their kernels was not
/// measured. A sum and the norm behind it are two operators of one kernel.
fn small_kernel(table: &WorkTable, record: &mut MeasurementRecord<'_>) -> Option<Sourced<Seconds>> {
    record.begin(table.name().to_owned());
    let (mut known, mut of_layer) = (TablePoints::default(), Vec::new());
    for kernel in SmallKernel::ALL {
        let (_, summary) = table.summaries().find(|(it, _)| *it == GpuWork::SmallKernel(kernel))?;
        known.add(kernel.to_string(), summary);
        of_layer.extend(std::iter::repeat_n(Some(summary), kernel.in_a_layer()));
    }
    let value = seconds(sum(of_layer)?) / SmallKernel::OPERATORS as f64;
    let note = "the mean over a layer's small operators of one token, in a replayed graph";
    Some(Sourced { value, source: record.table("the GPU", known, Some(note)) })
}

/// The host's time to launch the kernels of an operator, the mean over those of a layer.
fn issue(table: &WorkTable, record: &mut MeasurementRecord<'_>) -> Option<Sourced<Seconds>> {
    record.begin(table.name().to_owned());
    let (_, summary) = table.summaries().next()?;
    let issue = record.sourced("of all operators", seconds(summary), summary);
    Some(Sourced { value: issue.value / kernels::cuda::LAYER_OPERATORS as f64, source: issue.source })
}

/// What the executor needs for mixtures of experts; `None` without a product in bf16 to compare
/// with.
fn executor(
    table: &WorkTable,
    gemm: &BTreeMap<DType, GemmRates>,
    record: &mut MeasurementRecord<'_>,
) -> Option<ExecutorCosts> {
    record.begin(table.name().to_owned());
    let time_of = |work| table.summaries().find(|(it, _)| *it == work).map(|(_, summary)| summary);
    let (mixture, grouped) = (time_of(GpuWork::Mixture)?, time_of(GpuWork::GroupedProduct)?);
    let products = gemm.get(&DType::Bf16)?.points().iter();
    let rate = |[m, n, k]: [u64; 3], time: Seconds| (m * n * k) as f64 / time.get();
    let fastest = products.map(|it| rate([it.m, it.n, it.k], it.time)).fold(0.0, f64::max);
    let share = Ratio::new((rate(kernels::cuda::GROUPED_PRODUCT, seconds(grouped)) / fastest).min(1.0))?;
    let grouped = record.sourced("the product of tokens with their experts", seconds(grouped), grouped);
    Some(ExecutorCosts {
        grouped_product: Sourced { value: share, source: grouped.source },
        mixture: record.sourced("what a token needs besides products", seconds(mixture), mixture),
    })
}

/// The times of attention of both phases and all heads; `None` where a phase has none.
fn attention(tables: &[WorkTable], record: &mut MeasurementRecord<'_>) -> Option<AttentionRates> {
    record.begin("attention on the GPU".to_owned());
    let (mut points, mut known) = (Vec::new(), TablePoints::default());
    for table in tables.iter().filter(|table| matches!(table.kind, TableKind::Attention(_))) {
        for (work, summary) in table.summaries() {
            let GpuWork::Attention(shape) = work else { continue };
            known.add(shape.to_string(), summary);
            points.push(AttentionPoint { shape, time: seconds(summary) });
        }
    }
    let has = |phase| points.iter().any(|point: &AttentionPoint| point.shape.phase == phase);
    if !has(Phase::Decode) || !has(Phase::Prefill) {
        return None;
    }
    let note = "all kernels of a call in a replayed graph, other keys and values in each";
    let source = record.table("the GPU", known, Some(note));
    Some(AttentionRates::new(source, points))
}

fn products(table: &WorkTable, record: &mut MeasurementRecord<'_>) -> Option<(DType, GemmRates)> {
    let (TableKind::Products(dtype) | TableKind::PackedProducts(dtype)) = table.kind else { return None };
    record.begin(table.name().to_owned());
    let (mut points, mut known) = (Vec::new(), TablePoints::default());
    for (work, summary) in table.summaries() {
        let (GpuWork::Product { m, n, k, .. } | GpuWork::PackedProduct { m, n, k, .. }) = work else {
            continue;
        };
        known.add(format!("{m} × {n} × {k}"), summary);
        points.push(GemmPoint { m, n, k, time: seconds(summary) });
    }
    let note = match table.kind {
        TableKind::PackedProducts(_) => {
            "x in bf16, the executor's kernels in a replayed graph, other weights in each"
        }
        TableKind::Products(DType::Fp8) => "both operands in this format, without scales",
        _ => "kernels of a replayed graph, other weights in each",
    };
    let source = record.table("the GPU", known, Some(note));
    (!points.is_empty()).then_some((dtype, GemmRates::new(source, points)))
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn a_gpus_name_becomes_that_of_a_part() {
        assert_eq!(slug("NVIDIA H200"), "nvidia-h200");
        assert_eq!(slug("NVIDIA RTX PRO 6000 Blackwell (96GB)"), "nvidia-rtx-pro-6000-blackwell-96gb");
        assert_eq!(slug(" -- "), "gpu");
    }
}
