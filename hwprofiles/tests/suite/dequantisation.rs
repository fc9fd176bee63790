//! Products with formats that were not measured: bounds, monotonicity, and the stated cost.

use hwprofiles::{
    AttentionShape, Basis, Bound, DType, Dequantisation, Device, Elements, Library, Phase, Provenance, Ratio,
};
use proptest::prelude::*;

fn device(machine: &str, name: &str) -> Device {
    let machine = Library::default().machine(machine).expect("shipped");
    machine.device(machine.device_named(name).expect("a device")).clone()
}

fn time(device: &Device, dtype: DType, m: u64, n: u64, k: u64) -> f64 {
    device.gemm_time(dtype, m, n, k).expect("a rate").time.get()
}

fn stated(device: &Device, dtype: DType, n: u64, k: u64) -> f64 {
    let cost = device.details.dequantisation.as_ref().expect("a stated cost");
    cost.time(Dequantisation::weight(dtype), Elements::product(&[n, k])).get()
}

const MACHINES: [(&str, &str); 7] = [
    ("a100-sxm", "gpu"),
    ("h100-sxm", "gpu"),
    ("b200-sxm", "gpu"),
    ("rtx-4090", "gpu"),
    ("xeon-8480p-56c", "cpu"),
    ("rtx4090-desktop", "cpu"),
    ("example-loopback", "cpu"),
];

/// The formats that others are computed like.
const WIDER: [DType; 4] = [DType::Bf16, DType::Fp8, DType::Int8, DType::Int4];

#[test]
fn every_weight_format_has_a_time_on_every_device() {
    for (machine, name) in MACHINES {
        let device = device(machine, name);
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_quantised() && dtype.holds_weights()) {
            assert!(device.multiplies(dtype), "{machine} {dtype}");
            assert!(device.fastest_product(dtype).is_some(), "{machine} {dtype}");
            assert!(time(&device, dtype, 1, 4096, 4096) > 0.0, "{machine} {dtype}");
        }
        let decode = AttentionShape {
            phase: Phase::Decode,
            batch: 4,
            new_tokens: 1,
            past_tokens: 4095,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
        };
        for kv in DType::ALL.into_iter().filter(|dtype| dtype.is_quantised() && dtype.holds_kv()) {
            let estimate = device.attention_time(kv, &decode).expect("a rate");
            assert!(estimate.low <= estimate.time && estimate.time <= estimate.high);
        }
        assert!(device.attention_time(DType::Fp8, &decode).is_ok(), "{machine}");
        assert!(device.gemm_time(DType::Int2, 1, 64, 64).is_err(), "nobody has such weights");
    }
}

#[test]
fn four_bit_floats_are_native_on_blackwell_and_widened_elsewhere() {
    let many = |device: &Device, dtype| time(device, dtype, 8192, 8192, 8192);
    for native in [DType::Mxfp4, DType::Nvfp4] {
        let (b200, h100) = (device("b200-sxm", "gpu"), device("h100-sxm", "gpu"));
        assert!(many(&b200, native) < 0.7 * many(&b200, DType::Bf16), "{native}");
        assert!(many(&h100, native) >= 0.99 * many(&h100, DType::Bf16), "{native}");
        assert_eq!(h100.gemm_time(native, 1, 4096, 4096).unwrap().basis, Basis::Estimated);
    }
    // FP8 is native on Hopper and widened on Ampere.
    let (a100, h100) = (device("a100-sxm", "gpu"), device("h100-sxm", "gpu"));
    assert!(many(&h100, DType::Fp8) < 0.7 * many(&h100, DType::Bf16));
    assert!(many(&a100, DType::Fp8) >= 0.99 * many(&a100, DType::Bf16));
    // Scales of blocks change the bytes alone.
    let block = many(&h100, DType::Fp8Block) / many(&h100, DType::Fp8);
    assert!((block - 1.0).abs() < 0.02, "{block}");
}

#[test]
fn int4_on_an_a100_is_as_fast_as_published() {
    // gpt-fast, README: Llama-2-7B at batch 1 makes 104.9 tokens/s in bf16 and 196.8 in int4.
    let a100 = device("a100-sxm", "gpu");
    let shapes =
        [(12288, 4096, 32), (4096, 4096, 32), (22016, 4096, 32), (4096, 11008, 32), (32000, 4096, 1)];
    let token =
        |dtype| shapes.iter().map(|&(n, k, count)| time(&a100, dtype, 1, n, k) * count as f64).sum::<f64>();
    let ratio: f64 = token(DType::Bf16) / token(DType::Int4);
    assert!((ratio / (196.8 / 104.9) - 1.0).abs() < 0.15, "{ratio}");
}

#[test]
fn a_device_without_a_stated_cost_has_no_rate_for_other_formats() {
    let mut gpu = device("a100-sxm", "gpu");
    gpu.details.dequantisation = None;
    assert!(!gpu.multiplies(DType::Q4K));
    let message = gpu.gemm_time(DType::Q4K, 1, 64, 64).unwrap_err().to_string();
    assert!(message.starts_with("device 'gpu' has no gemm rate for q4_k"), "{message}");
}

#[test]
fn faster_computing_makes_dequantisation_faster() {
    let gpu = device("a100-sxm", "gpu");
    let twice = gpu.faster(Bound::Compute, Ratio::new(2.0).unwrap());
    let (before, after) = (stated(&gpu, DType::Q4K, 4096, 4096), stated(&twice, DType::Q4K, 4096, 4096));
    assert_eq!(before, 2.0 * after);
    let slower = gpu.slower(Ratio::new(3.0).unwrap());
    let ratio = time(&slower, DType::Q4K, 1, 4096, 4096) / time(&gpu, DType::Q4K, 1, 4096, 4096);
    assert!((ratio - 3.0).abs() < 0.01, "{ratio}");
}

proptest! {
    #![proptest_config(crate::cases(128))]

    #[test]
    fn fewer_bits_cost_at_most_the_dequantisation(
        at in 0..MACHINES.len(), dtype in prop::sample::select(DType::ALL.to_vec()),
        m in 1u64..5000, n in 1u64..80, k in 1u64..80,
    ) {
        let device = device(MACHINES[at].0, MACHINES[at].1);
        let (n, k) = (n * 256, k * 256);
        if dtype.is_quantised() && device.multiplies(dtype) && !device.gemm.contains_key(&dtype) {
            let own = device.gemm_time(dtype, m, n, k).unwrap();
            let slowest = WIDER.into_iter()
                // Reading is that of one row, which measured tables may have slower than several.
                .flat_map(|wide| [1, m].map(|m| device.gemm_time(wide, m, n, k)))
                .filter_map(Result::ok)
                .map(|estimate| estimate.time.get())
                .fold(0.0, f64::max);
            let many = WIDER.into_iter()
                .filter_map(|wide| device.gemm_time(wide, m.max(2048), n, k).ok())
                .map(|estimate| estimate.time.get() * (m as f64 / 2048.0).min(1.0))
                .fold(0.0, f64::max);
            let most = (slowest.max(many) + stated(&device, dtype, n, k)) * 1.001;
            prop_assert!(own.time.get() <= most, "{} {dtype} {} > {most}", MACHINES[at].0, own.time);
            prop_assert!(own.low <= own.time && own.time <= own.high);
            prop_assert_eq!(own.basis, Basis::Estimated);
        }
    }

    #[test]
    fn a_roofline_is_monotone_and_never_beats_its_bytes(
        dtype in prop::sample::select(DType::ALL.to_vec()), m in 1u64..5000, n in 1u64..80, k in 1u64..80,
        more in 1u64..4,
    ) {
        // Only datasheets: no surfaces between measured points, which need not be monotone.
        let machine = Library::default().machine("t4-flexgen").expect("shipped");
        let gpu = machine.device(machine.device_named("gpu").expect("a GPU"));
        prop_assume!(gpu.gemm.values().all(|rates| !matches!(rates.source, Provenance::Measured { .. })));
        let (n, k) = (n * 256, k * 256);
        if dtype.is_quantised() && dtype.holds_weights() {
            let own = time(gpu, dtype, m, n, k);
            for larger in [(m + more, n, k), (m, n * (1 + more), k), (m, n, k * (1 + more))] {
                prop_assert!(time(gpu, dtype, larger.0, larger.1, larger.2) >= own * (1.0 - 1e-9));
            }
            let peak = machine.memory(gpu.memory).bandwidth.value.get();
            prop_assert!(own >= dtype.matrix_bytes(n, k).as_f64() / peak);
            // Weights from a slower memory take longer, and dequantisation does not.
            let half = Ratio::new(0.5).unwrap();
            let far = gpu.gemm_time_from(half, dtype, 1, n, k).unwrap().time.get();
            let near = time(gpu, dtype, 1, n, k);
            let cost = stated(gpu, dtype, n, k);
            prop_assert!(far >= near && far - near <= (near - cost) * 1.0001 + 1e-12);
        }
    }
}
