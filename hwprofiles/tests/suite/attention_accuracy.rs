//! The error of fitted surfaces on attention that they were not fitted to: measured times of five
//! GPUs.

use hwprofiles::{
    AttentionFacts, AttentionPoint, AttentionRates, AttentionShape, Basis, DType, GpuPart, MixedPoint, Phase,
    Profile, Provenance, Seconds, shipped,
};
use std::collections::BTreeMap;

const CALIBRATION: &str = include_str!("../../data/measured/gpu_attention_calibration.csv");
const VALIDATION: &str = include_str!("../../data/measured/gpu_attention_validation.csv");

fn rows(text: &str) -> BTreeMap<String, Vec<AttentionPoint>> {
    let mut rows = BTreeMap::<_, Vec<_>>::new();
    for line in text.lines().skip(1) {
        let cells: Vec<_> = line.split(',').collect();
        let number = |i: usize| cells[i].parse::<u64>().unwrap();
        let shape = AttentionShape {
            phase: if cells[1] == "decode" { Phase::Decode } else { Phase::Prefill },
            batch: number(2),
            new_tokens: number(3),
            past_tokens: number(4),
            heads: number(5),
            kv_heads: number(6),
            head_dim: number(7),
        };
        let time = Seconds::new(cells[8].parse::<f64>().unwrap() / 1e6);
        rows.entry(cells[0].replace('_', "-")).or_default().push(AttentionPoint { shape, time });
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

fn fitted(gpu: &str, points: &[AttentionPoint]) -> AttentionRates {
    let source =
        Provenance::Measured { date: "2026-11-21".to_owned(), command: "test".to_owned(), spread: 0.0 };
    let facts = AttentionFacts::from_gpu(&part(gpu), DType::Bf16).unwrap();
    AttentionRates::fit(source, points, DType::Bf16, facts).unwrap()
}

#[derive(Debug, Clone, Copy)]
struct Score {
    shape: AttentionShape,
    error: f64,
    inside: bool,
}

fn summary(what: &str, scores: &[Score]) -> [f64; 3] {
    let mut errors: Vec<_> = scores.iter().map(|s| s.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let ninth = errors[errors.len() * 9 / 10];
    let inside = scores.iter().filter(|s| s.inside).count() as f64 / scores.len() as f64;
    println!("{what:<18} mean {mean:.4} p90 {ninth:.4} inside {inside:.3} of {}", scores.len());
    [mean, ninth, inside]
}

#[test]
fn unseen_attention_is_predicted_with_a_band_that_holds() {
    let validation = rows(VALIDATION);
    let mut all = Vec::new();
    for (gpu, points) in rows(CALIBRATION) {
        let rates = fitted(&gpu, &points);
        let score = |point: &AttentionPoint| {
            let estimate = rates.time(&point.shape).unwrap();
            assert_ne!(estimate.basis, Basis::Measured);
            let inside = estimate.low <= point.time && point.time <= estimate.high;
            Score { shape: point.shape, error: estimate.time / point.time - 1.0, inside }
        };
        let scores: Vec<_> = validation[&gpu].iter().map(score).collect();
        for phase in [Phase::Decode, Phase::Prefill] {
            let own: Vec<_> = scores.iter().filter(|s| s.shape.phase == phase).copied().collect();
            summary(&format!("{gpu} {phase}"), &own);
        }
        all.extend(scores);
    }
    for dim in [64, 128, 192, 256, 512] {
        let own: Vec<_> = all.iter().filter(|s| s.shape.head_dim == dim).copied().collect();
        summary(&format!("head dim {dim}"), &own);
    }
    let [mean, ninth, inside] = summary("all", &all);
    assert!(mean < 0.077 && ninth < 0.2 && (0.75..=0.85).contains(&inside));
}

#[test]
fn heads_of_512_values_have_short_tiles_and_on_hopper_decode_in_turn() {
    let time = |gpu: &str, phase, batch, tokens: u64, head_dim| {
        let new_tokens = if phase == Phase::Decode { 1 } else { tokens };
        let past_tokens = tokens - new_tokens;
        let shape = AttentionShape { phase, batch, new_tokens, past_tokens, heads: 8, kv_heads: 1, head_dim };
        part(gpu).attention[&DType::Bf16].time(&shape).unwrap().time.get()
    };
    for gpu in ["h100-sxm", "h200-sxm", "b200-sxm"] {
        // Of long prompts, twice the FLOP take more than twice the time; of one short one, more
        // multiprocessors have a tile.
        let prompt = |batch, tokens, dim| time(gpu, Phase::Prefill, batch, tokens, dim);
        assert!(prompt(8, 8192, 512) > 2.5 * prompt(8, 8192, 256), "{gpu}");
        // From 64 to 128 sequences; 288 values are half of a latent vector.
        let growth = |dim| time(gpu, Phase::Decode, 128, 8, dim) - time(gpu, Phase::Decode, 64, 8, dim);
        let most = time(gpu, Phase::Decode, 2048, 8, 512) / time(gpu, Phase::Decode, 256, 8, 512);
        let in_turn = gpu != "b200-sxm";
        assert_eq!(growth(512) > 100e-6, in_turn, "{gpu}: {} s", growth(512));
        assert_eq!(most < 1.2, in_turn, "{gpu}: {most}");
        assert!(growth(288) < 20e-6, "{gpu}: {} s", growth(288));
    }
}

#[test]
fn a_surface_reads_back_as_it_was_written() {
    for (gpu, points) in rows(CALIBRATION).into_iter().take(1) {
        let rates = fitted(&gpu, &points);
        let back =
            hwprofiles::yaml::read::<AttentionRates>(&hwprofiles::yaml::write(&rates), "rates").unwrap();
        assert_eq!(back, rates);
    }
}

const RTX_4090: &str = include_str!("../../data/measured/vllm_rtx-4090_llama-3.1-8b_attention.csv");
const RTX_PRO_6000: &str =
    include_str!("../../data/measured/vllm_rtx-pro-6000-se_llama-3.1-8b_attention.csv");

/// One layer of Llama 3.1 8B in a step: a chunk of a prompt, sequences that decode, or both.
struct Layer {
    prefill: AttentionShape,
    decode: AttentionShape,
    time: Seconds,
}

fn layers(text: &str) -> Vec<Layer> {
    let layer = |line: &str| {
        let cells: Vec<_> = line.split(',').collect();
        let number = |i: usize| cells[i].parse::<u64>().unwrap();
        let (heads, kv_heads, head_dim) = (32, 8, 128);
        let prefill = AttentionShape {
            phase: Phase::Prefill,
            batch: 1,
            new_tokens: number(0),
            past_tokens: number(1),
            heads,
            kv_heads,
            head_dim,
        };
        let past_tokens = number(3).saturating_sub(1);
        let decode =
            AttentionShape { phase: Phase::Decode, batch: number(2), new_tokens: 1, past_tokens, ..prefill };
        Layer { prefill, decode, time: Seconds::new(cells[4].parse::<f64>().unwrap() / 1e6) }
    };
    text.lines().skip(1).map(layer).collect()
}

#[test]
fn four_fifths_of_a_serving_engines_layers_are_predicted_from_the_others() {
    for (gpu, text, bar) in [("rtx-4090", RTX_4090, 0.06), ("rtx-pro-6000-se", RTX_PRO_6000, 0.06)] {
        let layers = layers(text);
        let (mut points, mut mixed) = (Vec::new(), Vec::new());
        for &Layer { prefill, decode, time } in layers.iter().step_by(5) {
            match (prefill.is_empty(), decode.is_empty()) {
                (true, _) => points.push(AttentionPoint { shape: decode, time }),
                (_, true) => points.push(AttentionPoint { shape: prefill, time }),
                _ => mixed.push(MixedPoint { prefill, decode, time }),
            }
        }
        let rates = fitted(gpu, &points).with_mixed(mixed).unwrap();
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for (_, layer) in layers.iter().enumerate().filter(|(i, _)| i % 5 != 0) {
            let single = if layer.prefill.is_empty() { layer.decode } else { layer.prefill };
            let is_mixed = !layer.prefill.is_empty() && !layer.decode.is_empty();
            let estimate = match is_mixed {
                true => rates.mixed_time(&layer.prefill, &layer.decode).unwrap(),
                false => rates.time(&single).unwrap(),
            };
            let inside = estimate.low <= layer.time && layer.time <= estimate.high;
            let error = estimate.time / layer.time - 1.0;
            let scores = if is_mixed { &mut together } else { &mut alone };
            scores.push(Score { shape: single, error, inside });
        }
        summary(&format!("{gpu} alone"), &alone);
        summary(&format!("{gpu} mixed"), &together);
        let [mean, ..] = summary(gpu, &[alone, together].concat());
        assert!(mean < bar, "{gpu}: {mean}");
    }
}
