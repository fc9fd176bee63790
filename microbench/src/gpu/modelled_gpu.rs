//! A GPU that consists of a few formulas. Its measurement must give the numbers of the formulas.

use crate::gpu::device::GpuUnderTest;
use crate::gpu::grid::GpuExtent;
use crate::gpu::measurement::{GpuOutcome, measure_device};
use crate::method::options::{Depth, Options, Progress};
use hwprofiles::{
    AttentionShape, Basis, Bytes, BytesPerSec, Curve, DType, Direction, Host, HostMemory, Library,
    MeasuredGpu, Phase, Presence, Provenance, Seconds, yaml,
};
use kernels::KernelError;
use kernels::cuda::{GROUPED_PRODUCT, GpuCheck, GpuFacts, GpuWork, LAYER_OPERATORS, SmallKernel};
use std::time::Duration;

/// GpuFacts as an H200 reports them.
pub(super) fn facts() -> GpuFacts {
    GpuFacts {
        name: "NVIDIA H200".to_owned(),
        capability: (9, 0),
        multiprocessors: 132,
        capacity: Bytes::new(141 << 30),
        l2: Bytes::new(50 << 20),
        bus: "0000:17:00.0".to_owned(),
        largest_read: Bytes::new(10 << 30),
        largest_transfer: Bytes::new(1 << 30),
        no_products: None,
        no_model_kernels: None,
        count: 1,
    }
}

const HOST: f64 = 2.5e-6;
const NODE: f64 = 1.2e-6;
const REPLAY: f64 = 9e-6;
const ROUND_TRIP: f64 = 7e-6;
const READ: f64 = 4.3e12;
const ALPHA: f64 = 1.5e-6;
const TO_DEVICE: f64 = 55e9;
const TO_HOST: f64 = 52e9;
const BOTH: f64 = 45e9;
const PAGEABLE: f64 = 11e9;

/// The time of a product: a roofline with a minimum.
fn product(dtype: DType, m: u64, n: u64, k: u64) -> f64 {
    let (bytes, rate) = if matches!(dtype, DType::Bf16 | DType::F16) { (2.0, 7e14) } else { (1.0, 1.4e15) };
    let (m, n, k) = (m as f64, n as f64, k as f64);
    NODE + (2.0 * m * n * k / rate).max(n * k * bytes / READ)
}

/// The time of attention: a minimum, and a roofline.
fn attention(shape: &AttentionShape) -> f64 {
    let read = shape.kv_elements().as_f64() * 2.0 / READ;
    20e-6 + read.max(shape.flop().as_f64() / 2e14)
}

/// The time of a small kernel, and its mean over two norms, two additions and one of each other.
fn small(kernel: SmallKernel) -> f64 {
    match kernel {
        SmallKernel::Norm => 4e-6,
        SmallKernel::Entry => 3e-6,
        SmallKernel::Activation => 5e-6,
    }
}

/// The mean over the six small operators of a layer.
const SMALL: f64 = (2.0 * 4e-6 + 3e-6 + 5e-6) / 6.0;
/// Launches of a layer's kernels.
const LAYER: f64 = 55e-6;
const MIXTURE: f64 = 12e-6;
/// The rate of products of experts.
const GROUPED: f64 = 2e14;

/// The time of a product by packed weights.
fn packed(dtype: DType, m: u64, n: u64, k: u64) -> f64 {
    NODE + (2.0 * (m * n * k) as f64 / 3e14).max(dtype.matrix_bytes(n, k).as_f64() / READ)
}

fn grouped() -> f64 {
    2.0 * GROUPED_PRODUCT.iter().product::<u64>() as f64 / GROUPED
}

fn transfer(direction: Direction, memory: HostMemory, bytes: f64) -> f64 {
    let rate = match (memory, direction) {
        (HostMemory::Pageable, _) => PAGEABLE,
        (HostMemory::Pinned, Direction::ToDevice) => TO_DEVICE,
        (HostMemory::Pinned, Direction::ToHost) => TO_HOST,
        (HostMemory::Pinned, Direction::Both) => BOTH,
    };
    ALPHA + bytes / rate
}

#[derive(Debug)]
struct ModelledGpu {
    facts: GpuFacts,
    elapsed: f64,
    asked: Option<(GpuWork, usize)>,
    calls: usize,
    /// Every so many calls, one is disturbed.
    disturbed: Option<usize>,
    /// GpuWork that is refused.
    refuses: fn(&GpuWork) -> bool,
    /// GpuWork that is computed wrong.
    spoils: fn(&GpuWork) -> bool,
}

impl ModelledGpu {
    fn new() -> Self {
        let never = |_: &GpuWork| false;
        Self {
            facts: facts(),
            elapsed: 0.0,
            asked: None,
            calls: 0,
            disturbed: None,
            refuses: never,
            spoils: never,
        }
    }
}

impl GpuUnderTest for ModelledGpu {
    fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    fn time(&mut self, work: GpuWork, calls: usize) -> Result<Seconds, KernelError> {
        if (self.refuses)(&work) {
            return Err(KernelError::Gpu {
                what: work.to_string(),
                reason: "CUBLAS_STATUS_NOT_SUPPORTED".to_owned(),
            });
        }
        let one = match work {
            GpuWork::Launch => HOST,
            GpuWork::Node => NODE,
            GpuWork::Replay => REPLAY,
            GpuWork::RoundTrip => ROUND_TRIP,
            GpuWork::Read(bytes) => bytes.as_f64() / READ,
            GpuWork::Copy(bytes) => 2.0 * bytes.as_f64() / (0.9 * READ),
            GpuWork::Product { dtype, m, n, k } => product(dtype, m, n, k),
            GpuWork::LayerCalls => LAYER,
            GpuWork::PackedProduct { dtype, m, n, k } => packed(dtype, m, n, k),
            GpuWork::GroupedProduct => grouped(),
            GpuWork::Mixture => MIXTURE,
            GpuWork::SmallKernel(kernel) => small(kernel),
            GpuWork::Attention(shape) => attention(&shape),
            GpuWork::Transfer { direction, memory, bytes } => transfer(direction, memory, bytes.as_f64()),
        };
        // The first call of a kind is slow.
        self.calls += 1;
        let slow = if self.asked.replace((work, calls)) != Some((work, calls)) { 4.0 } else { 1.0 };
        let disturbed =
            if self.disturbed.is_some_and(|every| self.calls.is_multiple_of(every)) { 3.0 } else { 1.0 };
        let one = one * slow * disturbed;
        self.elapsed += one * calls as f64;
        Ok(Seconds::new(one))
    }

    fn check(&mut self, work: GpuWork) -> Result<Option<GpuCheck>, KernelError> {
        let got = if (self.spoils)(&work) { f64::NAN } else { 2.0 };
        let computes =
            !matches!(work, GpuWork::Launch | GpuWork::Node | GpuWork::Replay | GpuWork::RoundTrip);
        Ok(computes.then_some(GpuCheck { got, wanted: 2.0, tolerance: 0.0 }))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.elapsed)
    }
}

fn found(mut device: ModelledGpu, extent: &GpuExtent) -> (GpuOutcome, ModelledGpu) {
    device.facts.largest_transfer = extent.largest_transfer;
    let options = Options { depth: Depth::Full, date: "2026-11-21".into(), command: "fulcrum bench".into() };
    let mut last = 0;
    let found = measure_device(&mut device, extent, &options, &mut |progress: Progress<'_>| {
        assert!(
            progress.done >= last && progress.done < progress.total && !progress.subject.is_empty(),
            "{progress:?}"
        );
        last = progress.done;
    });
    (found, device)
}

fn full() -> GpuExtent {
    GpuExtent::new(Depth::Full)
}

fn gpu(found: &GpuOutcome) -> &MeasuredGpu {
    found.gpu.as_option().unwrap_or_else(|| panic!("absent: {:?}", found.warnings))
}

fn near(what: &str, got: f64, wanted: f64) {
    assert!((got / wanted - 1.0).abs() < 1e-9, "{what}: {got}, not {wanted}");
}

#[test]
fn what_is_measured_of_a_modelled_gpu_are_the_numbers_of_the_model_also_where_one_time_of_ten_is_disturbed() {
    let (found, _) = found(ModelledGpu { disturbed: Some(10), ..ModelledGpu::new() }, &full());
    let MeasuredGpu { part, link, launches, read, copy, transfers } = gpu(&found);
    assert_eq!((part.gpu.as_str(), link.link.as_str()), ("nvidia-h200", "nvidia-h200-link"));
    assert_eq!(part.capacity.value, facts().capacity);
    near("bandwidth", part.bandwidth.value.get(), READ);
    assert_eq!(part.launch.value, Seconds::ZERO);
    near("issue", part.issue.as_ref().expect("it was measured").value.get(), LAYER / LAYER_OPERATORS as f64);
    near("sync", part.sync.value.get(), ROUND_TRIP);
    let starts = [(&launches.host, HOST), (&launches.node, NODE), (&launches.replay, REPLAY)];
    starts.iter().for_each(|(got, wanted)| near("start", got.value.get(), *wanted));
    let all = |curve: &Curve<BytesPerSec>, rate: f64| {
        assert!(curve.points.len() > 2);
        curve.points.iter().for_each(|point| near("rate", point.value.get(), rate));
    };
    all(read, READ);
    all(copy, 0.9 * READ);
    assert_eq!(part.gemm.len(), 3 + 10);
    for (dtype, rates) in &part.gemm {
        let is_dense = matches!(dtype, DType::F16 | DType::Bf16 | DType::Fp8);
        assert_eq!(rates.points().len(), if is_dense { 588 } else { 9 * 4 * 4 }, "{dtype}");
        let time = if is_dense { product } else { packed };
        for point in rates.points() {
            near("product", point.time.get(), time(*dtype, point.m, point.n, point.k));
        }
    }
    let executor = part.executor.as_ref().expect("it was measured");
    near("a mixture", executor.mixture.value.get(), MIXTURE);
    let fastest = part.gemm[&DType::Bf16].points().iter();
    let fastest = fastest.map(|it| 2.0 * (it.m * it.n * it.k) as f64 / it.time.get()).fold(0.0, f64::max);
    near("products of experts", executor.grouped_product.value.get(), GROUPED / fastest);
    assert_eq!(transfers.len(), 6);
    for it in transfers {
        for point in &it.curve.points {
            let bytes = point.size.as_f64();
            near("transfer", point.value.get(), bytes / transfer(it.direction, it.host_memory, bytes));
        }
        assert_eq!(it.curve.points.len(), 10);
    }
    // β is the rate of the largest transfer, and α the rest of the smallest transfer's time.
    let bytes = facts().largest_transfer.as_f64();
    let largest_of = |direction, memory| bytes / transfer(direction, memory, bytes);
    let largest = |direction| largest_of(direction, HostMemory::Pinned);
    near("β to the device", link.to_device.value.get(), largest(Direction::ToDevice));
    near("β to the host", link.to_host.value.get(), largest(Direction::ToHost));
    assert!((link.latency.value.get() / ALPHA - 1.0).abs() < 1e-3, "{}", link.latency.value);
    let duplex = link.duplex.as_ref().expect("both directions were measured").value.get();
    near("duplex", duplex, largest(Direction::Both) / largest(Direction::ToHost));
    let pageable = link.pageable.as_ref().expect("pageable memory was measured");
    near("pageable", pageable.to_host.value.get(), largest_of(Direction::ToHost, HostMemory::Pageable));
    for (direction, times) in
        [(Direction::ToDevice, &link.to_device_times), (Direction::ToHost, &link.to_host_times)]
    {
        for point in &times.as_ref().expect("pinned transfers were measured").points {
            near("time", point.value.get(), transfer(direction, HostMemory::Pinned, point.size.as_f64()));
        }
    }
    assert_eq!(part.compute_capability.as_deref(), Some("9.0"));
    assert_eq!(part.multiprocessors.as_ref().map(|it| it.value), Some(132));
    near("a small kernel", part.kernel.as_ref().expect("it was measured").value.get(), SMALL);
    assert_eq!(part.attention.keys().copied().collect::<Vec<_>>(), [DType::Bf16]);
    let points = part.attention[&DType::Bf16].points();
    assert_eq!(points.len(), 176);
    points.iter().for_each(|point| near("attention", point.time.get(), attention(&point.shape)));
    assert!(part.peak.is_empty() && part.price.is_none(), "nothing is guessed");
}

#[test]
fn every_number_says_that_it_was_measured_and_a_quiet_gpu_is_not_warned_of() {
    let (found, _) = found(ModelledGpu::new(), &full());
    assert_eq!(found.warnings, []);
    let MeasuredGpu { part, link, launches, read, copy, transfers } = gpu(&found);
    let mut sources =
        vec![&part.capacity.source, &part.bandwidth.source, &part.launch.source, &part.sync.source];
    sources.extend([&launches.host.source, &launches.node.source, &launches.replay.source]);
    sources.extend([
        &link.latency.source,
        &link.to_device.source,
        &link.to_host.source,
        &read.source,
        &copy.source,
    ]);
    sources.extend(part.gemm.values().map(|rates| &rates.source));
    sources.extend(part.attention.values().map(|rates| &rates.source));
    sources.extend(part.kernel.iter().map(|kernel| &kernel.source));
    sources.extend(part.issue.iter().map(|issue| &issue.source));
    sources.extend(part.executor.iter().flat_map(|it| [&it.grouped_product.source, &it.mixture.source]));
    sources.extend(transfers.iter().map(|it| &it.curve.source));
    for source in sources {
        let Provenance::Measured { date, command, spread } = source else { panic!("{source}") };
        assert!(date == "2026-11-21" && command.starts_with("fulcrum bench") && *spread < 1e-9, "{source}");
    }
}

#[test]
fn when_the_time_is_up_the_coarse_grid_is_there_and_what_is_missing_is_told() {
    let (whole, device) = found(ModelledGpu::new(), &full());
    let mut budget = device.elapsed;
    let mut counts = vec![gpu(&whole).part.gemm[&DType::Bf16].points().len()];
    for _ in 0..7 {
        budget /= 2.0;
        let extent = GpuExtent { budget: Duration::from_secs_f64(budget), ..full() };
        let (found, device) = found(ModelledGpu::new(), &extent);
        let part = &gpu(&found).part;
        let points = part.gemm.get(&DType::Bf16).map_or(&[][..], |rates| rates.points());
        counts.push(points.len());
        let late = found.warnings.iter().any(|warning| warning.message.contains("the time was up"));
        let found = part.gemm.values().map(|rates| rates.points().len()).sum::<usize>();
        assert_eq!(late, found < 3 * 588 + 10 * 144, "{found}");
        if points.len() >= 36 {
            let corners = [(1, 128, 128), (8192, 16384, 16384), (1, 16384, 128)];
            assert!(corners.iter().all(|shape| points.iter().any(|p| (p.m, p.n, p.k) == *shape)));
        }
        // A visit that has begun is finished. The longest visit is a few calls of the largest
        // product, and transfers are essential.
        let slack = if points.is_empty() { f64::MAX } else { 1.0 };
        assert!(device.elapsed < budget + slack, "{} of {budget}", device.elapsed);
    }
    assert!(counts.is_sorted_by(|a, b| a >= b) && counts.first() > counts.last(), "{counts:?}");
}

#[test]
fn a_quick_and_a_tiny_measurement_have_every_table() {
    for (depth, formats) in [(Depth::Quick, 3 + 5), (Depth::Tiny, 3)] {
        let (found, _) = found(ModelledGpu::new(), &GpuExtent::new(depth));
        let measured = gpu(&found);
        assert_eq!((measured.part.gemm.len(), measured.transfers.len()), (formats, 6), "{depth:?}");
        assert!(measured.part.kernel.is_some() && measured.part.attention.len() == 1, "{depth:?}");
    }
}

#[test]
fn a_product_that_is_refused_is_left_out_with_the_reason_and_the_rest_stays() {
    let large = |work: &GpuWork| matches!(work, GpuWork::Product { dtype: DType::Bf16, n: 16384, .. });
    let (found, _) = found(ModelledGpu { refuses: large, ..ModelledGpu::new() }, &full());
    let part = &gpu(&found).part;
    assert_eq!(
        (part.gemm[&DType::Bf16].points().len(), part.gemm[&DType::F16].points().len()),
        (588 - 84, 588)
    );
    let warnings: Vec<_> = found.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "matrix products in bf16 on the GPU: 84 of 588 points are left out: the GPU refused a product of 1 × 16384 × \
          128 in bf16 on the GPU: CUBLAS_STATUS_NOT_SUPPORTED"
        ]
    );
}

#[test]
fn products_that_are_computed_wrong_are_not_reported() {
    let fp8 = |work: &GpuWork| matches!(work, GpuWork::Product { dtype: DType::Fp8, .. });
    let (found, _) = found(ModelledGpu { spoils: fp8, ..ModelledGpu::new() }, &full());
    assert!(!gpu(&found).part.gemm.contains_key(&DType::Fp8) && gpu(&found).part.gemm.len() == 2 + 10);
    let warned = found
        .warnings
        .iter()
        .any(|it| it.subject.contains("fp8") && it.message.contains("computed NaN, but 2"));
    assert!(warned, "{:?}", found.warnings);
}

#[test]
fn attention_or_a_small_kernel_that_is_wrong_or_refused_is_left_out() {
    let decode = |work: &GpuWork| {
        matches!(work, GpuWork::Attention(AttentionShape { phase: Phase::Decode, head_dim: 128, .. }))
    };
    let (wrong, _) = found(ModelledGpu { spoils: decode, ..ModelledGpu::new() }, &full());
    let rates = &gpu(&wrong).part.attention[&DType::Bf16];
    assert!(rates.points().iter().all(|p| p.shape.phase == Phase::Prefill || p.shape.head_dim == 64));
    let subjects: Vec<_> = wrong.warnings.iter().map(|it| it.subject.as_str()).collect();
    let of_heads = |kv_heads| format!("decode attention of 32 heads of 128 over {kv_heads} on the GPU");
    assert_eq!(subjects, [of_heads(8), of_heads(32)]);
    let all = |work: &GpuWork| {
        let is_prompt = |shape: &AttentionShape| shape.phase == Phase::Prefill;
        match work {
            GpuWork::Attention(shape) => is_prompt(shape),
            work => *work == GpuWork::SmallKernel(SmallKernel::Entry),
        }
    };
    let (refused, _) = found(ModelledGpu { refuses: all, ..ModelledGpu::new() }, &full());
    // A mean of some kernels, or decodes without prompts, would mislead.
    let part = &gpu(&refused).part;
    assert!(part.kernel.is_none() && part.attention.is_empty() && part.gemm.len() == 3 + 10);
    assert_eq!(refused.warnings.len(), 4, "{:?}", refused.warnings);
}

#[test]
fn a_gpu_that_fails_at_what_it_must_do_is_absent_with_the_reason() {
    let launches = |work: &GpuWork| matches!(work, GpuWork::Launch);
    let reads = |work: &GpuWork| matches!(work, GpuWork::Read(_));
    let copies = |work: &GpuWork| matches!(work, GpuWork::Copy(_));
    let pinned = |work: &GpuWork| matches!(work, GpuWork::Transfer { memory: HostMemory::Pinned, .. });
    let names = ["launches", "read", "cop", "transfer"];
    for (name, fails) in names.into_iter().zip([launches as fn(&GpuWork) -> bool, reads, copies, pinned]) {
        let (refused, _) = found(ModelledGpu { refuses: fails, ..ModelledGpu::new() }, &full());
        let (wrong, _) = found(ModelledGpu { spoils: fails, ..ModelledGpu::new() }, &full());
        // An empty kernel computes nothing that could be wrong.
        let all = if name == "launches" { vec![refused] } else { vec![refused, wrong] };
        for found in all {
            assert_eq!(found.gpu, Presence::Absent, "{name}");
            let [warning] = &found.warnings[..] else { panic!("{name}: {:?}", found.warnings) };
            assert!(
                warning.message.contains("left out") && warning.message.contains(name),
                "{name}: {warning}"
            );
        }
    }
}

#[test]
fn a_gpu_without_cublas_or_nvrtc_or_beside_others_says_so() {
    let device = ModelledGpu {
        facts: GpuFacts {
            no_products: Some("libcublasLt was lost".into()),
            no_model_kernels: Some("libnvrtc was not found: install it".into()),
            count: 2,
            ..facts()
        },
        ..ModelledGpu::new()
    };
    let (found, _) = found(device, &full());
    let part = &gpu(&found).part;
    assert!(part.gemm.is_empty() && part.attention.is_empty() && part.kernel.is_none());
    let warned = |text: &str| found.warnings.iter().any(|warning| warning.message.contains(text));
    assert!(
        warned("no matrix products: libcublasLt was lost")
            && warned("none of the kernels that run models: libnvrtc was not found: install it")
            && warned("first of 2")
            && warned("CUDA_VISIBLE_DEVICES"),
        "{:?}",
        found.warnings
    );
}

#[test]
fn a_host_with_a_measured_gpu_reads_back_as_it_was_written_and_composes_with_its_gpu() {
    let (found, _) = found(ModelledGpu::new(), &full());
    let text = "host: h\ncpu: {model: x, cores: [0]}\n";
    let source = "source: {measured: {date: 2026-11-21, command: b, spread: 0.0}}";
    let text = format!(
        "{text}dram: {{capacity: {{value: 1 GB, {source}}}, bandwidth: [{{stream: read, threads: 1, curve: {{{source}, \
         points: [{{size: 1 GB, value: 9 GB/s}}]}}}}]}}\nteams: [{{threads: 1, launch: {{value: 1 us, {source}}}, \
         elementwise: {{value: 9 GB/s, {source}}}}}]\n"
    );
    let host = Host { gpu: found.gpu.clone(), ..Host::from_yaml(&text, "host.yaml").expect("a host") };
    let back = Host::from_yaml(&host.to_yaml(), "host.yaml").expect("a host with a GPU");
    assert_eq!(back.to_yaml(), host.to_yaml());
    let folder = tempfile::tempdir().expect("a folder");
    let this = folder.path().join("host.yaml");
    std::fs::write(&this, host.to_yaml()).expect("a file");
    let library = Library { this: Some(this), ..Library::default() };
    let by_name = yaml::read("parts: {cpu: this, gpu: this, link: this}", "inline").expect("a composition");
    for machine in [library.machine("this"), library.compose(&by_name)] {
        let machine = machine.expect("it composes");
        let device = machine.devices.iter().find(|device| device.name == "gpu").expect("a GPU");
        let time = device.gemm_time(DType::Bf16, 8192, 16384, 16384).expect("it was measured").time;
        near("a measured product", time.get(), product(DType::Bf16, 8192, 16384, 16384));
        let hbm = machine.memories.iter().find(|memory| memory.name == "hbm").expect("its memory");
        near("its bandwidth", hbm.bandwidth.value.get(), READ);
        let rates = &host.gpu.as_option().expect("a GPU").part.attention[&DType::Bf16];
        for point in rates.points() {
            let estimate = device.attention_time(DType::Bf16, &point.shape).expect("it was measured");
            assert_eq!((estimate.time, estimate.basis), (point.time, Basis::Measured), "{}", point.shape);
        }
        // A kernel of one token takes as long as the measured ones, which include their launch.
        let norm = device.elementwise_time(Bytes::new(24_576));
        assert!((norm.time.get() / SMALL - 1.0).abs() < 1e-3, "{}", norm.time);
        assert_eq!((device.launch.value, norm.basis), (Seconds::ZERO, Basis::Interpolated));
        // No other format was measured: a plan that asks for one gets an estimate, marked as one.
        let (phase, heads, kv_heads, head_dim) = (Phase::Decode, 32, 8, 128);
        let decode =
            AttentionShape { phase, batch: 8, new_tokens: 1, past_tokens: 2047, heads, kv_heads, head_dim };
        let prefill = AttentionShape { phase: Phase::Prefill, new_tokens: 2048, past_tokens: 0, ..decode };
        for shape in [decode, prefill] {
            let estimate = device.attention_time(DType::Fp8, &shape).expect("an estimate");
            assert_eq!(estimate.basis, Basis::Estimated);
        }
        // Nor was this batch, which is between two.
        let between = AttentionShape { batch: 24, past_tokens: 3000, ..decode };
        let estimate = device.attention_time(DType::Bf16, &between).expect("it is between points");
        assert_eq!(estimate.basis, Basis::Interpolated);
        assert!((estimate.time.get() / attention(&between) - 1.0).abs() < 0.05, "{}", estimate.time);
    }
}
