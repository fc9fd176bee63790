//! A measurement works with and without a GPU, and says which.

#[path = "../../../kernels/tests/stand_in/mod.rs"]
mod stand_in;

use hwprofiles::{DType, Host, Presence};
use microbench::{Depth, Options, Progress, measure};

#[test]
fn a_gpu_is_measured_or_absent_with_the_reason_told_and_never_an_error() {
    let options = Options { depth: Depth::Tiny, date: "2026-11-21".into(), command: "fulcrum bench".into() };
    let mut subjects = Vec::new();
    let measured = measure(
        &options,
        &mut |progress: Progress<'_>| subjects.push(progress.subject.to_owned()),
        &mut |_| Ok(()),
    )
    .expect("a machine without a GPU can be measured as well");
    let reasons: Vec<_> = subjects.iter().filter(|what| what.starts_with("no GPU: ")).collect();
    let warned = measured.warnings.iter().any(|warning| warning.subject == "GPU");
    match &measured.host.gpu {
        Presence::Present(gpu) => {
            assert!(gpu.read.points.len() > 1 && gpu.transfers.len() == 6, "{gpu:?}");
            assert!(reasons.is_empty(), "{reasons:?}");
            println!("measured:\n{}", measured.host.to_yaml());
        }
        Presence::Absent => {
            assert!(measured.host.to_yaml().contains("\ngpu: absent\n"));
            // Without a driver no GPU is expected: the reason is progress only, and there is no
            // warning.
            let library = reasons.iter().any(|reason| reason.contains("libcuda.so.1"));
            assert_eq!(library, !warned, "{reasons:?} {:?}", measured.warnings);
        }
    }
}

/// The stand-in's clock says how long work would take, so all numbers are known except those of the
/// host's clock.
#[test]
fn through_the_driver_of_a_stand_in_its_numbers_are_measured() {
    let output = stand_in::run("gpu::a_gpu_is_measured_or_absent_with_the_reason_told_and_never_an_error");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (_, file) = text.split_once("measured:\n").unwrap_or_else(|| panic!("no GPU was found: {text}"));
    let (file, _) = file.split_once("\ntest ").unwrap_or((file, ""));
    let host = Host::from_yaml(file, "host.yaml").unwrap_or_else(|error| panic!("{error}: {file}"));
    let gpu = host.gpu.as_option().expect("it was measured");
    assert_eq!((gpu.part.gpu.as_str(), gpu.part.compute_capability.as_deref()), ("stand-in-1", Some("9.0")));
    let near = |what: &str, got: f64, wanted: f64| {
        assert!((got / wanted - 1.0).abs() < 0.01, "{what}: {got}, not {wanted}");
    };
    near("an empty kernel", gpu.launches.host.value.get(), 2e-6);
    near("a node", gpu.launches.node.value.get(), 1e-6);
    // By the host's clock, on which the stand-in computes.
    assert!(gpu.part.issue.as_ref().expect("it was measured").value.get() > 0.0);
    near("reads", gpu.part.bandwidth.value.get(), 4e9);
    near(
        "the link",
        gpu.link.to_device_times.as_ref().expect("times").points[0].value.get(),
        1.5e-6 + 4096.0 / 50e9,
    );
    let formats: Vec<_> = gpu.part.gemm.keys().copied().collect();
    assert_eq!(formats, [DType::F16, DType::Bf16, DType::Fp8]);
    for (dtype, rates) in &gpu.part.gemm {
        let size = if matches!(dtype, DType::F16 | DType::Bf16) { 2.0 } else { 1.0 };
        for point in rates.points() {
            let (m, n, k) = (point.m as f64, point.n as f64, point.k as f64);
            let wanted = 1e-6 + (2.0 * m * n * k / 5e14).max(n * k * size / 4e9);
            near(&format!("{dtype} {point:?}"), point.time.get(), wanted);
        }
    }
    // A norm is one block, the entry into the cache six; the activation has more.
    let kernel = gpu.part.kernel.as_ref().expect("it was measured").value.get();
    assert!((21e-6..2e-3).contains(&kernel), "{kernel}");
    let attention = gpu.part.attention[&DType::Bf16].points();
    assert!(attention.len() == 3 && attention.iter().all(|point| point.time.get() > 21e-6), "{attention:?}");
}
