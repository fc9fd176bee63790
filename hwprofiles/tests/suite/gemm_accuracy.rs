//! The error of fitted surfaces on products that they were not fitted to: measured times of five
//! GPUs.

use hwprofiles::{
    Basis, DType, GemmFacts, GemmPoint, GemmRates, GpuPart, Profile, Provenance, Seconds, shipped,
};
use std::collections::BTreeMap;

const CALIBRATION: &str = include_str!("../../data/measured/gpu_gemm_calibration.csv");
const VALIDATION: &str = include_str!("../../data/measured/gpu_gemm_validation.csv");

type Rows = BTreeMap<(String, DType), Vec<GemmPoint>>;

fn rows(text: &str) -> Rows {
    let mut rows = Rows::new();
    for line in text.lines().skip(1) {
        let cells: Vec<_> = line.split(',').collect();
        let number = |i: usize| cells[i].parse::<u64>().unwrap();
        let dtype = if cells[1] == "fp8" { DType::Fp8 } else { DType::Bf16 };
        let time = Seconds::new(cells[5].parse::<f64>().unwrap() / 1e6);
        let point = GemmPoint { m: number(2), n: number(3), k: number(4), time };
        rows.entry((cells[0].replace('_', "-"), dtype)).or_default().push(point);
    }
    rows
}

fn part(name: &str) -> GpuPart {
    let (_, text) = shipped().find(|(shipped, _)| *shipped == name).unwrap();
    match Profile::from_yaml(text, name).unwrap() {
        Profile::Gpu(gpu) => *gpu,
        _ => panic!("{name} is no GPU"),
    }
}

struct Score {
    key: (String, DType),
    point: GemmPoint,
    error: f64,
    inside: bool,
}

fn scores() -> Vec<Score> {
    let validation = rows(VALIDATION);
    let mut scores = Vec::new();
    for (key, points) in rows(CALIBRATION) {
        let facts = GemmFacts::from_gpu(&part(&key.0), key.1).unwrap();
        let rates = GemmRates::fit(measured(), points, key.1, facts).unwrap();
        for &point in &validation[&key] {
            let estimate = rates.time(point.m, point.n, point.k).unwrap();
            assert_ne!(estimate.basis, Basis::Measured);
            let inside = estimate.low <= point.time && point.time <= estimate.high;
            let error = estimate.time / point.time - 1.0;
            scores.push(Score { key: key.clone(), point, error, inside });
        }
    }
    scores
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<_> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

fn measured() -> Provenance {
    Provenance::Measured { date: "2026-11-21".to_owned(), command: "test".to_owned(), spread: 0.0 }
}

#[test]
fn unseen_products_are_predicted_to_a_few_per_cent_with_a_band_that_holds() {
    let scores = scores();
    let error =
        |wanted: &dyn Fn(&Score) -> bool| mean(scores.iter().filter(|s| wanted(s)).map(|s| s.error.abs()));
    let inside = |wanted: &dyn Fn(&Score) -> bool| {
        mean(scores.iter().filter(|s| wanted(s)).map(|s| f64::from(u8::from(s.inside))))
    };
    let large = |s: &Score| s.point.n >= 1024 && s.point.k >= 1024;
    let bf16 = error(&|s| s.key.1 == DType::Bf16);
    let fp8 = error(&|s| s.key.1 == DType::Fp8);
    let all = error(&|_| true);
    let big = error(&|s| s.key.1 == DType::Bf16 && large(s));
    let mut errors: Vec<_> = scores.iter().map(|s| s.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let ninth = errors[errors.len() * 9 / 10];
    let coverage = inside(&|_| true);
    println!(
        "bf16 {bf16:.4} fp8 {fp8:.4} all {all:.4} p90 {ninth:.4} large bf16 {big:.4} inside {coverage:.3}"
    );
    for key in rows(VALIDATION).keys() {
        let own = |s: &Score| s.key == *key;
        println!("  {} {} {:.4} inside {:.3}", key.0, key.1, error(&own), inside(&own));
        assert!(error(&own) < 0.12 && (0.65..=0.9).contains(&inside(&own)), "{key:?}");
    }
    assert!(bf16 < 0.072 && fp8 < 0.075 && all < 0.073 && ninth < 0.16 && big < 0.068);
    assert!((0.75..=0.85).contains(&coverage));
}

/// The products of Llama-3.1-8B by layer: n and k.
const LAYERS: [(&str, u64, u64); 5] = [
    ("qkv_proj", 6144, 4096),
    ("o_proj", 4096, 4096),
    ("gate_up_proj", 28672, 4096),
    ("down_proj", 4096, 14336),
    ("lm_head", 128_256, 4096),
];

/// The measured products of a run: for every layer its rows by rising tokens.
fn layers(texts: [&str; 2]) -> Vec<Vec<GemmPoint>> {
    let points_of_layer = |&(name, n, k): &(&str, u64, u64)| {
        let cells = texts
            .iter()
            .flat_map(|text| text.lines().skip(1))
            .map(|line| line.split(',').collect::<Vec<_>>());
        let own = cells.filter(|cells| cells[0] == name);
        let mut points: Vec<_> = own
            .map(|cells| {
                let time = Seconds::new(cells[2].parse::<f64>().unwrap() / 1e6);
                GemmPoint { m: cells[1].parse().unwrap(), n, k, time }
            })
            .collect();
        points.sort_by_key(|p| p.m);
        points
    };
    LAYERS.iter().map(points_of_layer).collect()
}

#[test]
fn a_fifth_of_a_models_layer_times_predicts_the_rest() {
    let runs = [
        (
            "rtx-4090",
            include_str!("../../data/measured/vllm_rtx-4090_llama-3.1-8b_layers.csv"),
            include_str!("../../data/measured/vllm_rtx-4090_llama-3.1-8b_per_sequence.csv"),
        ),
        (
            "rtx-pro-6000-se",
            include_str!("../../data/measured/vllm_rtx-pro-6000-se_llama-3.1-8b_layers.csv"),
            include_str!("../../data/measured/vllm_rtx-pro-6000-se_llama-3.1-8b_per_sequence.csv"),
        ),
    ];
    for (name, dense, per_sequence) in runs {
        let (mut fifth, mut rest) = (Vec::new(), Vec::new());
        for layer in layers([dense, per_sequence]) {
            let fifths = layer.iter().enumerate().partition::<Vec<_>, _>(|(i, _)| i % 5 == 0);
            fifth.extend(fifths.0.iter().map(|(_, p)| **p));
            rest.extend(fifths.1.iter().map(|(_, p)| **p));
        }
        let facts = GemmFacts::from_gpu(&part(name), DType::Bf16).unwrap();
        let rates = GemmRates::fit(measured(), fifth, DType::Bf16, facts).unwrap();
        let estimate = |p: &GemmPoint| rates.time(p.m, p.n, p.k).unwrap();
        let error = mean(rest.iter().map(|p| (estimate(p).time / p.time - 1.0).abs()));
        let held = |p: &GemmPoint| estimate(p).low <= p.time && p.time <= estimate(p).high;
        let inside = mean(rest.iter().map(|p| f64::from(u8::from(held(p)))));
        println!("{name}: {} rows, error {error:.4}, inside {inside:.3}", rest.len());
        assert!(error < 0.06, "{name}: {error}");
    }
}
