//! Runs of a real vLLM, replayed from that GPU's layer times and the engine's settings.

use hwprofiles::statistics::upper_median;
use scenarios::Model;
use sim::serving::{LayerTimes, RecordedRun, ServedRequest};
use std::fs;
use std::path::Path;

/// The recorded times, and the simulated ones.
fn replayed(name: &str) -> [Vec<ServedRequest>; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/vllm_runs").join(name);
    let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let recorded = RecordedRun::read(&text("engine.yaml"), "engine.yaml", &text("requests.csv")).unwrap();
    let layers = Model::preset("llama-3.1-8b").unwrap().layers;
    let tables = [text("dense_tp1.csv"), text("per_sequence_tp1.csv"), text("attention_tp1.csv")];
    let times = LayerTimes::read(&tables[0], &tables[1], &tables[2], layers).unwrap();
    let pairs = recorded.replay(times).unwrap();
    assert_eq!(pairs.len(), recorded.served.len(), "all are answered");
    [0, 1].map(|which| pairs.iter().map(|pair| pair[which]).collect())
}

fn seconds(picos: sim::SimTime) -> f64 {
    picos.to_seconds().get()
}

/// The error of a mean over all requests.
fn error(of: impl Fn(&ServedRequest) -> f64, ours: &[ServedRequest], theirs: &[ServedRequest]) -> f64 {
    let mean = |all: &[ServedRequest]| all.iter().map(&of).sum::<f64>() / all.len() as f64;
    mean(ours) / mean(theirs) - 1.0
}

#[test]
fn a_real_day_of_vllm_is_replayed() {
    for name in ["rtx4090_llama-3.1-8b", "rtxpro6000_llama-3.1-8b"] {
        let [theirs, ours] = replayed(name);
        let ttft = error(|served| seconds(served.ttft()), &ours, &theirs);
        let tpot = error(|served| served.tpot().map_or(0.0, seconds), &ours, &theirs);
        let e2el = error(|served| seconds(served.e2el()), &ours, &theirs);
        let each = ours.iter().zip(&theirs).map(|(a, b)| (seconds(a.e2el()) / seconds(b.e2el()) - 1.0).abs());
        let median = upper_median(&each.collect::<Vec<_>>()).expect("values");
        println!(
            "{name}: TTFT {:+.2} %, TPOT {:+.2} %, E2EL {:+.2} %, median |E2EL| {:.2} %, {} preemptions",
            100.0 * ttft,
            100.0 * tpot,
            100.0 * e2el,
            100.0 * median,
            ours.iter().map(|served| served.preemptions).sum::<u32>(),
        );
        assert!(ttft.abs() <= 0.05, "{name}: TTFT {ttft}");
        assert!(tpot.abs() <= 0.01, "{name}: TPOT {tpot}");
        assert!(e2el.abs() <= 0.02, "{name}: E2EL {e2el}");
        assert!(median <= 0.05, "{name}: median E2EL {median}");
    }
}
