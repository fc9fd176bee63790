//! How far fitted surfaces are from products that they have not seen: measured ones of five GPUs.

use hwprofiles::{
    Basis, DType, GemmFacts, GemmPoint, GemmRates, GpuPart, Profile, Provenance, Seconds, shipped,
};
use std::collections::BTreeMap;

const CALIBRATION: &str = include_str!("../data/measured/gpu_gemm_calibration.csv");
const VALIDATION: &str = include_str!("../data/measured/gpu_gemm_validation.csv");

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
    let source =
        Provenance::Measured { date: "2026-11-21".to_owned(), command: "test".to_owned(), spread: 0.0 };
    let validation = rows(VALIDATION);
    let mut scores = Vec::new();
    for (key, points) in rows(CALIBRATION) {
        let facts = GemmFacts::of(&part(&key.0), key.1).unwrap();
        let rates = GemmRates::fit(source.clone(), points, key.1, facts).unwrap();
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

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().sum::<f64>() / values.count() as f64
}

#[test]
fn unseen_products_are_predicted_to_a_few_per_cent_with_a_band_that_holds() {
    let scores = scores();
    let error = |wanted: &dyn Fn(&Score) -> bool| {
        mean(scores.iter().filter(|s| wanted(s)).map(|s| s.error.abs()).collect::<Vec<_>>().into_iter())
    };
    let large = |s: &Score| s.point.n >= 1024 && s.point.k >= 1024;
    let bf16 = error(&|s| s.key.1 == DType::Bf16);
    let fp8 = error(&|s| s.key.1 == DType::Fp8);
    let all = error(&|_| true);
    let big = error(&|s| s.key.1 == DType::Bf16 && large(s));
    let mut errors: Vec<_> = scores.iter().map(|s| s.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let ninth = errors[errors.len() * 9 / 10];
    let coverage = mean(scores.iter().map(|s| f64::from(u8::from(s.inside))).collect::<Vec<_>>().into_iter());
    println!(
        "bf16 {bf16:.4} fp8 {fp8:.4} all {all:.4} p90 {ninth:.4} large bf16 {big:.4} inside {coverage:.3}"
    );
    for (key, _) in rows(VALIDATION) {
        let own = |s: &&Score| s.key == key;
        let inside = mean(
            scores.iter().filter(own).map(|s| f64::from(u8::from(s.inside))).collect::<Vec<_>>().into_iter(),
        );
        println!("  {} {} {:.4} inside {inside:.3}", key.0, key.1, error(&|s| s.key == key));
    }
    assert!(bf16 < 0.075 && fp8 < 0.10 && all < 0.08 && ninth < 0.18 && big < 0.07);
    assert!((0.75..=0.85).contains(&coverage));
}
