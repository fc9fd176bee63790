//! Laws of the time estimates.

use hwprofiles::{
    AttentionRates, AttentionShape, Basis, Bytes, BytesPerSec, DType, Device, DeviceKind, FlopPerSec,
    GemmPoint, GemmRates, Link, MemoryId, Phase, Provenance, Seconds, Sourced,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn measured() -> Provenance {
    Sourced::measured((), "2026-11-21", "fulcrum bench", 0.02).source
}

fn device(source: Provenance, points: Vec<GemmPoint>) -> Device {
    let (rate, bandwidth) = (FlopPerSec::new(8e10), BytesPerSec::new(16e9));
    let attention = AttentionRates::roofline(DType::Bf16, rate, bandwidth, source.clone());
    Device {
        reads: vec![],
        name: "cpu".to_owned(),
        kind: DeviceKind::Cpu,
        memory: MemoryId(0),
        cores: vec![0],
        launch: Sourced::estimated(Seconds::new(2e-6), "test"),
        issue: None,
        sync: Sourced::estimated(Seconds::new(2e-6), "test"),
        gemm: BTreeMap::from([(DType::Bf16, GemmRates::new(source.clone(), points))]),
        attention: BTreeMap::from([(DType::Bf16, attention)]),
        elementwise: Sourced { value: BytesPerSec::new(1e10), source },
        power: None,
        idle_power: None,
        price: None,
        ranks: None,
        details: Default::default(),
    }
}

fn decode() -> AttentionShape {
    let (phase, heads, kv_heads, head_dim) = (Phase::Decode, 8, 2, 64);
    AttentionShape { phase, batch: 3, new_tokens: 1, past_tokens: 99, heads, kv_heads, head_dim }
}

/// Points of a grid of shapes × rows whose time grows with m, n and k.
fn grid() -> impl Strategy<Value = Vec<GemmPoint>> {
    let shapes = prop::collection::btree_set((1u64..20_000, 1u64..20_000), 1..5);
    let rows = prop::collection::btree_map(1u64..1024, 1.0..3.0f64, 1..6);
    (shapes, rows).prop_map(|(shapes, rows)| {
        let row_points = |(n, k): (u64, u64)| {
            let mut time = (n * k) as f64 * 1e-10;
            let mut points = Vec::new();
            for (&m, growth) in &rows {
                time *= growth;
                points.push(GemmPoint { m, n, k, time: Seconds::new(time) });
            }
            points
        };
        shapes.into_iter().flat_map(row_points).collect()
    })
}

proptest! {
    #![proptest_config(crate::cases(256))]

    #[test]
    fn a_measured_gemm_point_is_returned_exactly(points in grid()) {
        let device = device(measured(), points.clone());
        for p in points {
            let estimate = device.gemm_time(DType::Bf16, p.m, p.n, p.k).unwrap();
            prop_assert_eq!(estimate.time, p.time);
            prop_assert_eq!(estimate.basis, Basis::Measured);
        }
    }

    #[test]
    fn gemm_time_never_falls_as_m_grows(points in grid(), n in 1u64..50_000, k in 1u64..50_000, m in 1u64..2000) {
        let device = device(measured(), points);
        let time = |m| device.gemm_time(DType::Bf16, m, n, k).unwrap().time.get();
        prop_assert!(time(m + 1) >= time(m) * (1.0 - 1e-12), "{} then {}", time(m), time(m + 1));
    }

    #[test]
    fn gemm_time_is_positive_finite_and_independent_of_the_order_of_points(
        points in grid(), n in 1u64..1_000_000, k in 1u64..1_000_000, m in 1u64..1_000_000,
    ) {
        let forward = device(measured(), points.clone()).gemm_time(DType::Bf16, m, n, k).unwrap();
        let backward = device(measured(), points.into_iter().rev().collect()).gemm_time(DType::Bf16, m, n, k).unwrap();
        prop_assert!(forward.time.get() > 0.0 && forward.time.get().is_finite());
        prop_assert_eq!(forward, backward);
    }

    #[test]
    fn beyond_the_largest_m_the_time_per_row_is_kept(points in grid(), times in 2u64..9) {
        let device = device(measured(), points.clone());
        let last = points.iter().max_by_key(|p| p.m).unwrap();
        let estimate = device.gemm_time(DType::Bf16, last.m * times, last.n, last.k).unwrap();
        prop_assert!((estimate.time.get() / (last.time.get() * times as f64) - 1.0).abs() < 1e-12);
        prop_assert_eq!(estimate.basis, Basis::Extrapolated);
    }

    #[test]
    fn beyond_the_largest_shape_the_time_per_weight_is_kept(points in grid(), times in 2u64..9) {
        let device = device(measured(), points.clone());
        let last = points.iter().max_by_key(|p| p.n * p.k).unwrap();
        let estimate = device.gemm_time(DType::Bf16, last.m, last.n * times, last.k).unwrap();
        prop_assert!((estimate.time.get() / (last.time.get() * times as f64) - 1.0).abs() < 1e-9);
        prop_assert_eq!(estimate.basis, Basis::Extrapolated);
    }
}

#[test]
fn between_two_measured_m_time_is_linear() {
    let point = |m, time| GemmPoint { m, n: 64, k: 64, time: Seconds::new(time) };
    let device = device(measured(), vec![point(1, 1.0), point(3, 2.0)]);
    let estimate = device.gemm_time(DType::Bf16, 2, 64, 64).unwrap();
    assert_eq!((estimate.time.get(), estimate.basis), (1.5, Basis::Interpolated));
}

#[test]
fn between_two_shapes_the_time_per_weight_is_linear_in_log_size() {
    let point = |n, time| GemmPoint { m: 1, n, k: 16, time: Seconds::new(time) };
    // Times per 16 weights are 1 s and 2 s; n = 32 is half-way from 16 to 64 as a logarithm.
    let device = device(measured(), vec![point(16, 16.0), point(64, 128.0)]);
    let estimate = device.gemm_time(DType::Bf16, 1, 32, 16).unwrap();
    assert!((estimate.time.get() - 48.0).abs() < 1e-9, "{estimate:?}");
    assert_eq!(estimate.basis, Basis::Interpolated);
}

#[test]
fn of_two_shapes_of_one_size_the_more_alike_answers() {
    let point = |n, k, time| GemmPoint { m: 1, n, k, time: Seconds::new(time) };
    let device = device(measured(), vec![point(100, 1, 1.0), point(1, 100, 5.0)]);
    assert_eq!(device.gemm_time(DType::Bf16, 1, 50, 2).unwrap().time.get(), 1.0);
    assert_eq!(device.gemm_time(DType::Bf16, 1, 2, 50).unwrap().time.get(), 5.0);
}

#[test]
fn no_work_takes_no_time_even_where_nothing_was_measured() {
    let device = device(measured(), Vec::new());
    for (m, n, k) in [(0, 5, 5), (5, 0, 5), (5, 5, 0)] {
        assert_eq!(device.gemm_time(DType::Int4, m, n, k).unwrap().time, Seconds::ZERO);
    }
    let nothing = AttentionShape { batch: 0, ..decode() };
    assert_eq!(device.attention_time(DType::F32, &nothing).unwrap().time, Seconds::ZERO);
    assert_eq!(device.elementwise_time(Bytes::ZERO).time, Seconds::ZERO);
}

#[test]
fn points_that_nobody_measured_make_estimates() {
    let source = Sourced::estimated((), "peak × 0.6").source;
    let point = GemmPoint { m: 1, n: 8, k: 8, time: Seconds::new(1.0) };
    let device = device(source, vec![point]);
    assert_eq!(device.gemm_time(DType::Bf16, 1, 8, 8).unwrap().basis, Basis::Estimated);
    assert_eq!(device.attention_time(DType::Bf16, &decode()).unwrap().basis, Basis::Estimated);
    assert_eq!(device.elementwise_time(Bytes::new(1)).basis, Basis::Estimated);
}

#[test]
fn a_missing_rate_names_the_device_the_format_and_the_command() {
    let point = GemmPoint { m: 1, n: 8, k: 8, time: Seconds::new(1.0) };
    let device = device(measured(), vec![point]);
    insta::assert_snapshot!(device.gemm_time(DType::Int4, 1, 8, 8).unwrap_err(), @"device 'cpu' has no gemm rate for int4 (it has: bf16); measure it with `fulcrum bench`, or choose a number format that it has");
    insta::assert_snapshot!(device.attention_time(DType::Int8, &decode()).unwrap_err(), @"device 'cpu' has no decode attention rate for int8 (it has: bf16); measure it with `fulcrum bench`, or choose a number format that it has");
}

#[test]
fn a_transfer_takes_latency_plus_bytes_over_bandwidth() {
    let link = Link {
        name: "up".to_owned(),
        from: MemoryId(0),
        to: MemoryId(1),
        latency: Sourced::estimated(Seconds::new(1e-6), "test"),
        bandwidth: Sourced::estimated(BytesPerSec::new(1e9), "test"),
        wire: None,
        details: Default::default(),
    };
    assert!((link.time(Bytes::new(1000)).get() - 2e-6).abs() < 1e-18);
    assert_eq!(link.time(Bytes::ZERO), Seconds::ZERO);
}
